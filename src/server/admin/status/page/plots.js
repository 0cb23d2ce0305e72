import { byId, bytesOf, element, msOf, rateOf, svg } from "./format.js";

const plotPoints = 120;

const plots = [
  ["Events received per second", (at) => [at.rates.eventsReceivedPerSecond], rateOf],
  ["Events dispatched per second", (at) => [at.rates.eventsDispatchedPerSecond], rateOf],
  ["RPCs per second", (at) => [at.rates.rpcsPerSecond], rateOf],
  ["Bytes sent per second", (at) => [at.rates.bytesSentPerSecond], bytesOf],
  ["Dispatch latency, p50 and p99 (dashed)", (at) => quantiles(at.latencies.dispatch), msOf],
  ["RPC latency, p50 and p99 (dashed)", (at) => quantiles(at.latencies.rpc), msOf],
].map(([title, read, format]) => {
  const value = element("span", { class: "value" }, "–");
  const drawing = svg("svg", {
    viewBox: "0 0 120 40",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const lines = ["first", "second"].map((kind) => svg("polyline", { class: kind }));
  drawing.append(svg("line", { x1: 0, x2: 120, y1: 40, y2: 40 }), ...lines);
  byId("plots").append(element("figure", {}, element("figcaption", {}, title, value), drawing));
  return { read, format, value, lines, history: [] };
});

function quantiles(latency) {
  return [latency?.p50, latency?.p99];
}

/** Adds the values of an update to all plots. */
export function draw(overview) {
  for (const { read, format, value, lines, history } of plots) {
    const values = read(overview);
    history.push(values);
    if (history.length > plotPoints) history.shift();
    const isKnown = values.some((each) => each !== undefined);
    value.textContent = isKnown ? values.map(format).join(" · ") : "–";
    const highest = Math.max(1e-9, ...history.flat().filter((each) => each !== undefined));
    for (const [i, line] of lines.entries()) {
      const from = plotPoints - history.length;
      const points = history.flatMap((each, at) =>
        each[i] === undefined ? [] : [`${from + at},${(40 - (38 * each[i]) / highest).toFixed(1)}`],
      );
      line.setAttribute("points", points.join(" "));
    }
  }
}
