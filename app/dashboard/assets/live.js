// Keeps the live part of a page as it is on the server: the stream says that something has changed, and the part is asked for
// again, never twice at a time. It is said when the stream is down. A control that is pointed at or has the focus stays.
"use strict";

(() => {
  const APART_MS = 800; // between two looks, at least
  const SLOWLY_MS = 5000; // between looks without a stream
  const UNASKED_MS = 15000; // and with one: leases are prolonged without a word
  const DEAD_MS = 15000; // a stream that says nothing for so long
  const AGAIN_MS = [1000, 2000, 5000, 10000]; // until the stream is tried again

  const part = document.getElementById("live");
  const stream = document.getElementById("stream");
  const words = document.getElementById("stream-status");
  const aloud = document.getElementById("stream-announcement");
  if (!part || !stream || !window.htmx) return;

  const now = () => performance.now() + 1; // not the clock, which may be put back; never 0
  const began = now();
  let ever = false; // whether the stream has ever been up
  let lost = null; // what had the focus when the part was asked for
  let heard = 0; // when the stream said something last; 0: it is down
  let asked = now();
  let answered = true;
  let fresh = true; // whether the part is what the server answered last
  let got = false; // whether the look that is under way has brought it
  let due = false;
  let tries = 0;
  let timer = 0;
  let connection = null;

  // What is kept as it is while the rest is morphed.
  htmx.registerExtension("steady", {
    htmx_before_morph_attr: (element, detail) => !(element.tagName === "DETAILS" && detail.attrName === "open"),
  });

  const CONTROLS = "a.button, button, input, select, textarea";

  function held() {
    const focus = document.activeElement;
    if (focus && part.contains(focus) && focus.matches(CONTROLS)) return true;
    return [...part.querySelectorAll(CONTROLS)].some((one) => one.matches(":hover"));
  }

  function say(state, text) {
    if (stream.dataset.state !== state) stream.dataset.state = state;
    if (words.textContent !== text) words.textContent = text;
    // Read out is only that it has stopped, and that it goes on: not every pause at a control.
    const told = state === "down" ? text : aloud.textContent && state === "live" ? "live again" : aloud.textContent;
    if (aloud.textContent !== told) aloud.textContent = told;
  }

  function told() {
    if (!ever && now() - began < 3000) say("idle", "connecting");
    else if (!fresh) say("down", navigator.onLine === false ? "offline" : "not fresh, looks every 5 s");
    else if (due && held()) say("held", "paused at a control");
    else if (heard) say("live", "live");
    else if (navigator.onLine === false) say("down", "offline");
    else say("down", "not live, looks every 5 s");
  }

  function look() {
    if (!answered || document.hidden || !due || now() - asked < (fresh ? APART_MS : SLOWLY_MS) || held()) return;
    due = false;
    answered = false;
    got = false;
    asked = now();
    lost = part.contains(document.activeElement) ? document.activeElement : null;
    htmx.trigger(part, "refresh");
  }

  function up(event) {
    if (event.target !== stream) return;
    connection = event.detail.connection;
    heard = now();
    ever = true;
    tries = 0;
    due = true;
    told();
  }

  function down(event) {
    if (event.target !== stream) return;
    heard = 0;
    told();
  }

  function connect() {
    timer = 0;
    if (heard || document.hidden || stream._htmx?.sse) return;
    htmx.ajax("GET", stream.getAttribute("hx-sse:connect"), { source: stream, swap: "none" });
  }

  function tick() {
    const at = now();
    if (heard && at - heard > DEAD_MS && !document.hidden) {
      heard = 0;
      connection?.reader?.cancel(); // the extension connects anew
    }
    if (!heard && !stream._htmx?.sse && !timer) {
      timer = setTimeout(connect, AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)]);
      tries += 1;
    }
    if (at - asked > (heard && fresh ? UNASKED_MS : SLOWLY_MS)) due = true;
    told();
    look();
  }

  stream.addEventListener("htmx:sse:after:connection", up);
  for (const name of ["htmx:sse:error", "htmx:sse:close", "htmx:response:error", "htmx:error"]) stream.addEventListener(name, down);
  for (const name of ["changed", "alive"]) {
    stream.addEventListener(name, () => {
      heard = now();
      if (name === "changed") due = true;
      look();
    });
  }
  part.addEventListener("htmx:before:response", (event) => {
    const answer = event.detail.ctx.response;
    // A page of refusal is no part of this page: what is there stays, and the next look may do better.
    if (answer.status >= 400 && !answer.headers.get("HX-Redirect")) event.preventDefault();
    else got = true;
  });
  part.addEventListener("htmx:finally:request", (event) => {
    if (event.target !== part) return;
    answered = true;
    fresh = got;
    told();
    // Who had the focus on something that is no more goes on from the top of the content, not from that of the page.
    if (lost && !lost.isConnected && document.activeElement === document.body) document.getElementById("main").focus();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    due = true;
    if (heard) heard = now(); // while nobody looked there was no stream: the extension connects anew
  });
  setInterval(tick, 250);
})();
