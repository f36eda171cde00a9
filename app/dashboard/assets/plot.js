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

  const MINUTE_S = 60;
  const TIME_STEPS_S = [5, 10, 15, 30, 60, 120, 180].map((minutes) => minutes * MINUTE_S); // whole minutes: no label repeats
  const UNIT_STEPS = [1, 2, 5].flatMap((digit) => [...Array(16).keys()].map((zeros) => digit * 10 ** zeros)).sort((a, b) => a - b);

  const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const clock = (seconds) => clockFormat.format(new Date(seconds * 1000));

  function options(width, history) {
    const palette = colours();
    const axis = { stroke: palette.text, grid: { stroke: palette.grid, width: 1 }, ticks: { stroke: palette.grid, width: 1 } };
    // The value of a sample is the highest since the sample before, so each step reaches back to that sample.
    const steps = uPlot.paths.stepped({ align: -1 });
    const lines = history.series.map((series, index) => ({
      label: series.name === "pool" ? "all" : series.name.replace(/^orchestrator\//, ""),
      stroke: series.name === "capacity" ? palette.end : palette.lines[index % palette.lines.length],
      width: series.name === "pool" ? 2 : 1.5,
      dash: series.name === "capacity" ? [6, 4] : undefined,
      paths: steps,
      points: { show: false },
    }));
    return {
      width, height: 220, cursor: { y: false },
      scales: {
        x: { range: () => [history.since, history.until] },
        y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] },
      },
      axes: [
        { ...axis, incrs: TIME_STEPS_S, values: (_, times) => times.map(clock) },
        { ...axis, incrs: UNIT_STEPS, size: 44 },
      ],
      series: [{ label: "Up to", value: (_, seconds) => (seconds == null ? "–" : clock(seconds)) }, ...lines],
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
