"use strict";
// A chart of curves that can be read with the pointer or the arrow keys. All text is set as text, never as HTML.
const addTo = (parent, element, properties = {}, text) => {
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
};
const drawChart = (() => {
  const COLORS = ["#2563a8", "#d9730d", "#2f8f5b", "#b3261e", "#8250df", "#0e7490"];
  const HEIGHT = 340, LEFT = 64, RIGHT = 28, TOP = 12, LINE = 20, KEY_WIDTH = 190;
  const grouped = (number) => Math.round(number).toLocaleString("en");
  const short = (number) => (Math.abs(number) >= 1000 ? grouped(number) : String(+number.toPrecision(4)));
  const add = (parent, tag, ...rest) => addTo(parent, document.createElementNS("http://www.w3.org/2000/svg", tag), ...rest);
  function ticks(low, high, number) {
    const rough = (high - low) / number, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(Math.abs(value) < 1e-12 ? 0 : value);
    return found;
  }
  function powers(low, high) {
    const factors = high / low < 30 ? [1, 2, 5] : [1], found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) found.push(...factors.map((factor) => factor * power).filter((value) => value >= low && value <= high));
    return found;
  }
  const nearest = (xs, wanted) => xs.reduce((best, x, index) => (Math.abs(x - wanted) < Math.abs(xs[best] - wanted) ? index : best), 0);

  // lines: title, xs, ys and, if there are any, color, dash, low and high (a band) or rows (thin lines); levels: title, value, dash, color.
  // scale: where the horizontal axis begins: at zero, or at the first place ("cut", or "log" for a logarithmic axis).
  return (container, reading, { lines, levels = [], title, across, unit, before = "after", scale = "zero" }) => {
    container.replaceChildren();
    const values = [...lines.flatMap((line) => [...line.ys, ...(line.low ?? []), ...(line.high ?? []), ...(line.rows ?? []).flat()]), ...levels.map((level) => level.value)].filter(Number.isFinite);
    if (!values.length) return null;
    let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
    if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
    const last = Math.max(...lines.map((line) => line.xs.at(-1))), first = scale === "zero" ? 0 : Math.min(...lines.map((line) => line.xs[0])), isLog = scale === "log" && last > first;
    const share = (x) => (isLog ? Math.log(x / first) / Math.log(last / first) : (x - first) / (last - first || 1)), pad = 0.05 * (high - low), muted = getComputedStyle(container).getPropertyValue("--muted");
    const width = Math.max(320, Math.min(container.clientWidth, 1100)), keys = lines.length + levels.length;
    const foot = HEIGHT - 66 - LINE * (Math.ceil(keys / Math.max(1, Math.floor(width / KEY_WIDTH))) - 1);
    const toX = (x) => LEFT + (width - LEFT - RIGHT) * share(x), toY = (y) => foot - ((foot - TOP) * (y - low + pad)) / (high - low + 2 * pad);
    const root = add(container, "svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, role: "img", tabindex: 0 });
    const ends = lines.map((line) => `${line.title} ends at ${short(line.ys.at(-1))}`).join("; ");
    root.setAttribute("aria-label", `${title} against ${across}: ${ends}. Arrow keys read the curves.`);
    add(root, "path", { class: "frame", d: `M${LEFT} ${TOP}V${foot}H${width - RIGHT}` });
    for (const value of ticks(low - pad, high + pad, 5)) {
      add(root, "path", { class: "frame", d: `M${LEFT} ${toY(value)}H${width - RIGHT}`, opacity: 0.5 });
      add(root, "text", { x: LEFT - 8, y: toY(value) + 4, "text-anchor": "end" }, short(value));
    }
    for (const value of (isLog ? powers : ticks)(first, last, width < 600 ? 3 : 6)) add(root, "text", { x: toX(value), y: foot + 20, "text-anchor": "middle" }, short(value));
    add(root, "text", { x: (LEFT + width) / 2, y: foot + 38, "text-anchor": "middle" }, across);
    const path = (xs, ys) => ys.map((y, index) => `${index ? "L" : "M"}${toX(xs[index]).toFixed(1)} ${toY(y).toFixed(1)}`).join("");
    for (const level of levels) add(root, "path", { d: `M${LEFT} ${toY(level.value)}H${width - RIGHT}`, stroke: level.color ?? muted, "stroke-dasharray": level.dash, fill: "none" });
    lines.forEach((line, number) => {
      const stroke = line.color ?? COLORS[number % COLORS.length];
      if (line.low) {
        const back = [...line.high.keys()].reverse(), top = path(back.map((index) => line.xs[index]), back.map((index) => line.high[index]));
        add(root, "path", { d: `${path(line.xs, line.low)}${top.replace("M", "L")}Z`, fill: stroke, opacity: 0.18 });
      }
      for (const row of line.rows ?? []) add(root, "path", { d: path(line.xs, row), stroke, fill: "none", "stroke-width": 1, opacity: 0.45 });
      add(root, "path", { d: path(line.xs, line.ys), stroke, fill: "none", "stroke-width": 2.2, "stroke-dasharray": line.dash ?? "none" });
    });
    let x = LEFT, y = foot + 58;
    const entries = [...lines.map((line, number) => ({ ...line, stroke: line.color ?? COLORS[number % COLORS.length] })), ...levels.map((level) => ({ ...level, stroke: level.color ?? muted }))];
    for (const entry of entries) {
      const text = add(root, "text", { class: "key" }, entry.title), length = text.getComputedTextLength();
      if (x > LEFT && x + 28 + length > width) [x, y] = [LEFT, y + LINE];
      text.setAttribute("x", x + 28);
      text.setAttribute("y", y + 5);
      add(root, "path", { d: `M${x} ${y}h22`, stroke: entry.stroke, "stroke-width": 2.2, "stroke-dasharray": entry.dash ?? "none" });
      x += 52 + length;
    }
    const mark = add(root, "path", { class: "hover", d: "" }), cursor = add(root, "path", { class: "hover", d: "" });
    let at = lines[0].xs.length - 1;
    const read = (wanted) => {
      at = nearest(lines[0].xs, wanted);
      cursor.setAttribute("d", `M${toX(lines[0].xs[at])} ${TOP}V${foot}`);
      const texts = lines.map((line) => {
        const index = nearest(line.xs, wanted), range = line.low ? ` (${short(line.low[index])} to ${short(line.high[index])})` : "";
        return `${line.title} ${short(line.ys[index])}${range}`;
      });
      reading.textContent = `${before} ${short(lines[0].xs[at])} ${unit}: ${texts.join("; ")}`;
    };
    root.addEventListener("pointermove", (event) => {
      const bounds = root.getBoundingClientRect(), place = (((event.clientX - bounds.left) / bounds.width) * width - LEFT) / (width - LEFT - RIGHT), inside = Math.min(Math.max(place, 0), 1);
      read(isLog ? first * (last / first) ** inside : first + inside * (last - first));
    });
    root.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      read(lines[0].xs[Math.min(Math.max(at + step, 0), lines[0].xs.length - 1)]);
    });
    for (const kind of ["pointerleave", "blur"]) {
      root.addEventListener(kind, () => {
        cursor.setAttribute("d", "");
        reading.textContent = "";
      });
    }
    return { mark: (x) => mark.setAttribute("d", `M${toX(Math.min(x, last))} ${TOP}V${foot}`) };
  };
})();
