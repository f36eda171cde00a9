// Times go on: what the server wrote as "in 3 min" is counted on from there, by the clock that leases go by. Each part of the
// page says what time that was, so a clock here that is wrong, or is put right, makes no difference for long.
"use strict";

(() => {
  const STEPS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let said = null;
  let ahead = 0; // of the clock here

  function hear(at) {
    const now = document.getElementById("now")?.dataset.now;
    if (now && now !== said) {
      said = now;
      ahead = Number(now) - at;
    }
  }

  function duration(seconds) {
    const told = [];
    for (const [size, name] of STEPS) {
      const count = Math.floor(seconds / size);
      if (count || told.length || size === 1) {
        told.push([count, name]);
        seconds -= count * size;
      }
    }
    return told.slice(0, 2).filter(([count], place) => count || !place).map(([count, name]) => `${count} ${name}`).join(" ");
  }

  function tick() {
    const now = Date.now() + ahead;
    for (const element of document.querySelectorAll("[data-relative]")) {
      const ms = Number(element.dataset.relative) - now;
      const seconds = duration(Math.floor(Math.abs(ms) / 1000));
      const text = ms > 0 ? `in ${seconds}` : `${seconds} ago`;
      if (element.textContent !== text) element.textContent = text;
    }
  }

  // The page says when it was made; what came after that, sending and reading it, is not to be counted as the clock's.
  hear(performance.timeOrigin + (performance.getEntriesByType("navigation")[0]?.responseStart ?? performance.now()));
  tick();
  setInterval(tick, 1000);
  document.addEventListener("htmx:after:swap", () => {
    hear(Date.now());
    tick();
  });
})();
