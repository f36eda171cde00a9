// Shows times in the time zone of the browser, and keeps relative times such as "in 3 min" up to date, by the clock of the server.
// Each live part brings the time of the server, so a wrong clock of the browser makes no difference.
"use strict";

(() => {
  const STEPS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let pageTime = null;
  let offsetMs = 0; // of the server's clock before the browser's

  function readPageTime(nowMs) {
    const now = document.getElementById("now")?.dataset.now;
    if (now && now !== pageTime) {
      pageTime = now;
      offsetMs = Number(now) - nowMs;
    }
  }

  function duration(seconds) {
    const parts = [];
    for (const [size, name] of STEPS) {
      const count = Math.floor(seconds / size);
      if (count || parts.length || size === 1) {
        parts.push([count, name]);
        seconds -= count * size;
      }
    }
    return parts.slice(0, 2).filter(([count], index) => count || !index).map(([count, name]) => `${count} ${name}`).join(" ");
  }

  const format = (options) => new Intl.DateTimeFormat("en-GB", { hourCycle: "h23", ...options });
  const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const DAY = { day: "numeric", month: "short", year: "numeric" };
  const clockFormat = format(CLOCK);
  const dayFormat = format({ day: "2-digit", month: "short" });
  const dateFormat = format(DAY);
  const wholeFormat = format({ weekday: "short", ...DAY, ...CLOCK, timeZoneName: "short" });
  const utcFormat = format({ ...CLOCK, timeZone: "UTC" });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

  function localize(now) {
    const today = dateFormat.format(now);
    const times = document.querySelectorAll("time[data-ms]");
    for (const element of times) {
      const ms = Number(element.dataset.ms);
      const day = dateFormat.format(ms) === today ? "" : `${dayFormat.format(ms)} `;
      const text = day + clockFormat.format(ms);
      if (element.textContent === text) continue;
      element.textContent = text;
      element.title = `${wholeFormat.format(ms)}, ${utcFormat.format(ms)} UTC`;
    }
    const footer = document.getElementById("zone");
    const note = `Times are local (${zone}); hover over one for its date.`;
    if (footer && footer.textContent !== note) footer.textContent = note;
    if (footer) footer.hidden = !times.length;
  }

  function tick() {
    const now = Date.now() + offsetMs;
    localize(now);
    for (const element of document.querySelectorAll("[data-elapsed]")) {
      const text = duration(Math.max(0, Math.floor((now - Number(element.dataset.elapsed)) / 1000)));
      if (element.textContent !== text) element.textContent = text;
    }
    for (const element of document.querySelectorAll("[data-relative]")) {
      const ms = Number(element.dataset.relative) - now;
      const seconds = duration(Math.floor(Math.abs(ms) / 1000));
      const text = ms > 0 ? `in ${seconds}` : `${seconds} ago`;
      if (element.textContent !== text) element.textContent = text;
    }
  }

  // The time of the page is that of the start of its response, not of its end.
  readPageTime(performance.timeOrigin + (performance.getEntriesByType("navigation")[0]?.responseStart ?? performance.now()));
  tick();
  setInterval(tick, 1000);
  document.addEventListener("htmx:after:swap", () => {
    readPageTime(Date.now());
    tick();
  });
  // A new live part has its times in UTC. They are changed before they are painted.
  const part = document.getElementById("live");
  if (part) new MutationObserver(() => localize(Date.now() + offsetMs)).observe(part, { childList: true, characterData: true, subtree: true });
})();
