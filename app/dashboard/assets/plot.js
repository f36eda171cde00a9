// The plot of what was used: drawn from the numbers the server tells, and again when those are newer.
"use strict";

(() => {
  let drawn = null;
  let shown = "";

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return { text: of("--quiet"), grid: of("--line"), lines: [1, 2, 3, 4, 5, 6, 7].map((n) => of(`--plot-${n}`)), end: of("--limit") };
  }

  function options(width, told) {
    const of = colours();
    const axis = { stroke: of.text, grid: { stroke: of.grid, width: 1 }, ticks: { stroke: of.grid, width: 1 } };
    const lines = told.series.map((one, place) => ({
      label: one.name === "pool" ? "all" : one.name.replace(/^orchestrator\//, ""),
      stroke: one.name === "capacity" ? of.end : of.lines[place % of.lines.length],
      width: one.name === "pool" ? 2 : 1.5,
      dash: one.name === "capacity" ? [6, 4] : undefined,
      points: { show: false },
    }));
    const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);
    return {
      width, height: 220, cursor: { y: false }, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
      axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, size: 44 }],
      series: [{ label: "At", value: (_, seconds) => (seconds == null ? "–" : clock(seconds)) }, ...lines],
    };
  }

  async function draw() {
    const place = document.getElementById("plot");
    if (!place || !window.uPlot) return;
    const answer = await fetch(place.dataset.from, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const told = await answer.json();
    drawn?.destroy();
    const width = place.clientWidth - 16;
    drawn = new uPlot(options(width, told), [told.times, ...told.series.map((one) => one.values)], place);
  }

  function look() {
    const from = document.getElementById("plot")?.dataset.from ?? "";
    const minute = `${from} ${Math.floor(Date.now() / 60000)}`;
    if (from && minute !== shown) {
      shown = minute;
      draw().catch(() => { shown = ""; });
    }
  }

  look();
  setInterval(look, 15000);
  document.addEventListener("htmx:after:swap", look);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { shown = ""; look(); });
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => { shown = ""; look(); }, 200); });
})();
