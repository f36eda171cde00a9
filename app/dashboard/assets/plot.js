// The plot of the usage history, drawn again every minute.
"use strict";

(() => {
  let plot = null;
  let drawnFor = "";

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const lines = [1, 2, 3, 4, 5, 6, 7].map((n) => colour(`--plot-${n}`));
    return { text: colour("--quiet"), grid: colour("--line"), lines, end: colour("--limit") };
  }

  function options(width, history) {
    const palette = colours();
    const axis = { stroke: palette.text, grid: { stroke: palette.grid, width: 1 }, ticks: { stroke: palette.grid, width: 1 } };
    const lines = history.series.map((series, index) => ({
      label: series.name === "pool" ? "all" : series.name.replace(/^orchestrator\//, ""),
      stroke: series.name === "capacity" ? palette.end : palette.lines[index % palette.lines.length],
      width: series.name === "pool" ? 2 : 1.5,
      dash: series.name === "capacity" ? [6, 4] : undefined,
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
    const element = document.getElementById("plot");
    if (!element || !window.uPlot) return;
    const response = await fetch(element.dataset.from, { headers: { Accept: "application/json" } });
    if (!response.ok) return;
    const history = await response.json();
    plot?.destroy();
    const width = element.clientWidth - 16;
    plot = new uPlot(options(width, history), [history.times, ...history.series.map((series) => series.values)], element);
  }

  function redrawIfDue() {
    const from = document.getElementById("plot")?.dataset.from ?? "";
    const minute = `${from} ${Math.floor(Date.now() / 60000)}`;
    if (from && minute !== drawnFor) {
      drawnFor = minute;
      draw().catch(() => { drawnFor = ""; });
    }
  }

  redrawIfDue();
  setInterval(redrawIfDue, 15000);
  document.addEventListener("htmx:after:swap", redrawIfDue);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawnFor = ""; redrawIfDue(); });
  let resizeTimer = 0;
  addEventListener("resize", () => { clearTimeout(resizeTimer); resizeTimer = setTimeout(() => { drawnFor = ""; redrawIfDue(); }, 200); });
})();
