// Keeps the live part of a page up to date. The stream announces a change, and the part is requested again, one request at a
// time. The status line shows if the stream is down. The part does not change while one of its controls is hovered or focused.
"use strict";

(() => {
  const MIN_INTERVAL_MS = 800; // between two requests, at least
  const POLL_MS = 5000; // between two requests without a stream
  const MAX_AGE_MS = 15000; // between two requests with a stream: a renewed lease makes no event
  const DEAD_MS = 15000; // without an event, after which the stream is broken
  const RETRY_MS = [1000, 2000, 5000, 10000]; // before each attempt to reconnect

  const part = document.getElementById("live");
  const stream = document.getElementById("stream");
  const statusText = document.getElementById("stream-status");
  const announcement = document.getElementById("stream-announcement");
  if (!part || !stream || !window.htmx) return;

  const now = () => performance.now() + 1; // monotonic, and never 0
  const startedAt = now();
  let wasConnected = false; // whether the stream has ever been connected
  let focusBefore = null; // the focused element at the time of the request
  let lastEventAt = 0; // time of the last event; 0: the stream is down
  let requestedAt = now();
  let isIdle = true;
  let isFresh = true; // whether the last request has succeeded
  let hasResponse = false; // whether the current request has succeeded
  let isDue = false;
  let attempts = 0;
  let retryTimer = 0;
  let connection = null;

  // Keeps the state of open details while the part is morphed.
  htmx.registerExtension("steady", {
    htmx_before_morph_attr: (element, detail) => !(element.tagName === "DETAILS" && detail.attrName === "open"),
  });

  const CONTROLS = "a.button, button, input, select, textarea";

  function isControlInUse() {
    const focus = document.activeElement;
    if (focus && part.contains(focus) && focus.matches(CONTROLS)) return true;
    return [...part.querySelectorAll(CONTROLS)].some((control) => control.matches(":hover"));
  }

  function showStatus(state, text) {
    if (stream.dataset.state !== state) stream.dataset.state = state;
    if (statusText.textContent !== text) statusText.textContent = text;
    // Screen readers announce the loss and the return of the stream, and not every pause at a control.
    const spoken = state === "down" ? text : announcement.textContent && state === "live" ? "live again" : announcement.textContent;
    if (announcement.textContent !== spoken) announcement.textContent = spoken;
  }

  function updateStatus() {
    if (!wasConnected && now() - startedAt < 3000) showStatus("idle", "connecting");
    else if (!isFresh) showStatus("down", navigator.onLine === false ? "offline" : "not up to date, retries every 5 s");
    else if (isDue && isControlInUse()) showStatus("held", "paused while you use a control");
    else if (lastEventAt) showStatus("live", "live");
    else if (navigator.onLine === false) showStatus("down", "offline");
    else showStatus("down", "not live, refreshes every 5 s");
  }

  function refresh() {
    if (!isIdle || document.hidden || !isDue || now() - requestedAt < (isFresh ? MIN_INTERVAL_MS : POLL_MS) || isControlInUse()) return;
    isDue = false;
    isIdle = false;
    hasResponse = false;
    requestedAt = now();
    focusBefore = part.contains(document.activeElement) ? document.activeElement : null;
    htmx.trigger(part, "refresh");
  }

  function onConnected(event) {
    if (event.target !== stream) return;
    connection = event.detail.connection;
    lastEventAt = now();
    wasConnected = true;
    attempts = 0;
    isDue = true;
    updateStatus();
  }

  function onDisconnected(event) {
    if (event.target !== stream) return;
    lastEventAt = 0;
    updateStatus();
  }

  function connect() {
    retryTimer = 0;
    if (lastEventAt || document.hidden || stream._htmx?.sse) return;
    htmx.ajax("GET", stream.getAttribute("hx-sse:connect"), { source: stream, swap: "none" });
  }

  function tick() {
    const nowMs = now();
    if (lastEventAt && nowMs - lastEventAt > DEAD_MS && !document.hidden) {
      lastEventAt = 0;
      connection?.reader?.cancel(); // the extension connects again
    }
    if (!lastEventAt && !stream._htmx?.sse && !retryTimer) {
      retryTimer = setTimeout(connect, RETRY_MS[Math.min(attempts, RETRY_MS.length - 1)]);
      attempts += 1;
    }
    if (nowMs - requestedAt > (lastEventAt && isFresh ? MAX_AGE_MS : POLL_MS)) isDue = true;
    updateStatus();
    refresh();
  }

  stream.addEventListener("htmx:sse:after:connection", onConnected);
  for (const name of ["htmx:sse:error", "htmx:sse:close", "htmx:response:error", "htmx:error"]) stream.addEventListener(name, onDisconnected);
  for (const name of ["changed", "alive"]) {
    stream.addEventListener(name, () => {
      lastEventAt = now();
      if (name === "changed") isDue = true;
      refresh();
    });
  }
  part.addEventListener("htmx:before:response", (event) => {
    const response = event.detail.ctx.response;
    // The page of a refusal does not replace the part.
    if (response.status >= 400 && !response.headers.get("HX-Redirect")) event.preventDefault();
    else hasResponse = true;
  });
  part.addEventListener("htmx:finally:request", (event) => {
    if (event.target !== part) return;
    isIdle = true;
    isFresh = hasResponse;
    updateStatus();
    // If the focused element is gone, the focus moves to the top of the content, not of the page.
    if (focusBefore && !focusBefore.isConnected && document.activeElement === document.body) document.getElementById("main").focus();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    isDue = true;
    if (lastEventAt) lastEventAt = now(); // hidden pages have no stream: the extension connects again
  });
  setInterval(tick, 250);
})();
