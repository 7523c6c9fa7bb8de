"use strict";
// Draws curves that can be read in place of the still figures that show them; the stills remain for print and without scripts.
for (const [id, charts] of Object.entries(JSON.parse(document.getElementById("charts").textContent))) {
  const add = (parent, tag, ...rest) => addTo(parent, document.createElement(tag), ...rest);
  for (const figure of document.querySelectorAll(`[data-charts="${CSS.escape(id)}"]`)) {
    const grid = add(figure, "div", { class: "charts" }), heading = figure.closest("section")?.querySelector("h3") ? "h4" : "h3";
    const parts = charts.map((chart) => {
      const part = add(grid, "div");
      add(part, heading, {}, chart.title);
      return { chart, box: add(part, "div", { class: "chart" }), reading: add(part, "p", { class: "reading", role: "status" }) };
    });
    figure.querySelector(".scroll").classList.add("still");
    figure.prepend(grid);
    let width = 0;
    const redraw = () => parts.forEach(({ chart, box, reading }) => drawChart(box, reading, chart));
    new ResizeObserver(() => {
      if (grid.clientWidth === width || !grid.clientWidth) return;
      width = grid.clientWidth;
      redraw();
    }).observe(grid);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }
}
