// Keeps relative times such as "in 3 min" up to date, by the clock of the server. Each live part brings the time of the server,
// so a wrong clock of the browser makes no difference.
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

  function tick() {
    const now = Date.now() + offsetMs;
    for (const element of document.querySelectorAll("[data-relative]")) {
      const ms = Number(element.dataset.relative) - now;
      const seconds = duration(Math.floor(Math.abs(ms) / 1000));
      const text = ms > 0 ? `in ${seconds}` : `${seconds} ago`;
      if (element.textContent !== text) element.textContent = text;
    }
  }

  // The time of the page is that of the start of its response; sending and reading it took more.
  readPageTime(performance.timeOrigin + (performance.getEntriesByType("navigation")[0]?.responseStart ?? performance.now()));
  tick();
  setInterval(tick, 1000);
  document.addEventListener("htmx:after:swap", () => {
    readPageTime(Date.now());
    tick();
  });
})();
