// The script of the status page. All texts of the service are inserted as text, never as HTML.

(() => {
  const pageSize = 50;
  const streamsMs = 2_000;
  const retryMs = 5_000;
  const requestMs = 15_000;
  const searchDelayMs = 250;
  const plotPoints = 120;

  const byId = (id) => document.getElementById(id);

  /** An element with attributes and children: elements, or texts. */
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const count = new Intl.NumberFormat("en");
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const numberOf = (value) => (value === undefined ? "–" : count.format(value));
  const rateOf = (value) => (value < 10 ? String(Number(value.toFixed(1))) : short.format(value));

  function bytesOf(value) {
    if (value === undefined) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let [amount, unit] = [value, 0];
    for (; amount >= 1_024 && unit < units.length - 1; unit++) amount /= 1_024;
    return `${Number(amount.toFixed(amount < 10 && unit > 0 ? 1 : 0))} ${units[unit]}`;
  }

  function durationOf(seconds) {
    if (seconds === undefined) return "–";
    if (seconds < 60) return `${Math.floor(seconds)} s`;
    if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
    if (seconds < 86_400)
      return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
    return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
  }

  function msOf(value) {
    if (value === undefined) return "–";
    return value < 1_000 ? `${Number(value.toPrecision(3))} ms` : `${(value / 1_000).toFixed(2)} s`;
  }

  /**
   * Fills a table's body, cell by cell: what has not changed stays, so that a selection and a screen reader's position
   * remain. A cell is a text, or has a text and a class.
   */
  function fill(body, columns, rows) {
    while (body.rows.length > rows.length) body.deleteRow(-1);
    for (const [i, row] of rows.entries()) {
      const line = body.rows[i] ?? body.insertRow();
      for (const [j, column] of columns.entries()) {
        const content = row[j];
        const { text, kind = "" } = typeof content === "string" ? { text: content } : content;
        let cell = line.cells[j];
        if (cell === undefined) {
          cell = column.isHeading ? element("th", { scope: "row" }) : element("td");
          line.append(cell);
        }
        const name = [column.kind ?? "", kind].join(" ").trim();
        if (cell.className !== name) cell.className = name;
        if (cell.textContent !== text) cell.textContent = text;
        if (column.kind === "long" && cell.title !== text) cell.title = text;
      }
    }
  }

  function head(table, columns) {
    const row = element("tr");
    for (const { title, kind, sort } of columns) {
      const cell = element("th", { scope: "col", class: kind === "number" ? "number" : "" });
      if (sort === undefined) cell.append(title);
      else {
        cell.dataset.sort = sort;
        cell.append(element("button", { type: "button" }, title));
      }
      row.append(cell);
    }
    table.tHead.append(row);
  }

  // Plots.

  const svgNamespace = "http://www.w3.org/2000/svg";

  function svg(name, attributes) {
    const made = document.createElementNS(svgNamespace, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

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

  function draw(overview) {
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
          each[i] === undefined
            ? []
            : [`${from + at},${(40 - (38 * each[i]) / highest).toFixed(1)}`],
        );
        line.setAttribute("points", points.join(" "));
      }
    }
  }

  // What is updated once a second.

  const resourceColumns = [
    { title: "Name", isHeading: true },
    { title: "Upstream" },
    { title: "Revision", kind: "number" },
    { title: "Lag", kind: "number" },
    { title: "Objects", kind: "number" },
    { title: "Window from", kind: "number" },
    { title: "to", kind: "number" },
    { title: "Events", kind: "number" },
    { title: "Bytes", kind: "number" },
    { title: "Reconnects", kind: "number" },
    { title: "Relists", kind: "number" },
  ];

  const processColumns = [
    { title: "Process", isHeading: true },
    { title: "State" },
    { title: "PID", kind: "number" },
    { title: "Connections", kind: "number" },
    { title: "Streams", kind: "number" },
    { title: "Memory", kind: "number" },
    { title: "Restarts", kind: "number" },
  ];

  function upstreamCell({ upstream }, { at, upstream: tier }) {
    if (upstream === undefined) return { text: "not cached", kind: "muted" };
    const { state, error, staleSeconds, lastReceivedAt } = upstream;
    const silentSeconds = (Date.parse(at) - Date.parse(lastReceivedAt)) / 1_000;
    // An embedded store says nothing while nothing is written.
    const isSilent = tier.kind !== "embedded" && silentSeconds >= 10;
    const silence = isSilent ? `, silent for ${durationOf(silentSeconds)}` : "";
    const stale = staleSeconds === undefined ? "" : `, stale for ${durationOf(staleSeconds)}`;
    const kind = state === "connected" ? (stale === "" ? "good" : "warn") : "bad";
    return {
      text: `${state}${stale === "" ? silence : stale}${error === undefined ? "" : `: ${error}`}`,
      kind,
    };
  }

  function resourceRow(resource, overview) {
    const { name, isReady, isCached, revision, lagRevisions, objects, eventWindow, upstream } =
      resource;
    const cached = (value) => (isCached ? numberOf(value) : "–");
    return [
      isReady ? name : `${name} (not ready)`,
      upstreamCell(resource, overview),
      cached(revision),
      { text: cached(lagRevisions), kind: lagRevisions > 0 ? "warn" : "" },
      cached(objects),
      numberOf(eventWindow?.oldestRevision),
      numberOf(eventWindow?.newestRevision),
      numberOf(eventWindow?.events),
      bytesOf(eventWindow?.bytes),
      numberOf(upstream?.reconnects),
      numberOf(upstream?.relists),
    ];
  }

  function processRow({
    worker,
    isReady,
    hasResponded,
    pid,
    connections,
    streams,
    memoryBytes,
    restarts,
  }) {
    const state = !hasResponded
      ? { text: "does not respond", kind: "bad" }
      : isReady
        ? { text: "ready", kind: "good" }
        : { text: "not ready", kind: "warn" };
    return [
      worker === 0 ? "service" : `worker ${worker}`,
      state,
      pid === undefined ? "–" : String(pid),
      numberOf(connections),
      numberOf(streams),
      bytesOf(memoryBytes),
      numberOf(restarts),
    ];
  }

  function tierText({ upstream, processes }) {
    const workers = processes.length > 1 ? ` with ${processes.length} workers` : "";
    if (upstream.kind === "embedded")
      return `This service${workers} has an embedded store: it is the only tier.`;
    const addresses = upstream.addresses.join(", ");
    if (upstream.kind === "etcd") return `This service${workers} follows etcd at ${addresses}.`;
    const inUse = upstream.inUse.length === 0 ? "none at present" : upstream.inUse.join(", ");
    return `This service${workers} is a relay of watch-fanout at ${addresses}; it watches ${inUse}.`;
  }

  function setText(target, text) {
    if (target.textContent !== text) target.textContent = text;
  }

  function showProblems(problems) {
    const list = byId("problems");
    const key = JSON.stringify(problems);
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    list.replaceChildren(
      ...problems.map(({ at, level, text }) =>
        element(
          "li",
          {},
          element("time", { datetime: at }, at.replace("T", " ").slice(0, 19)),
          element("b", { class: level === "warn" ? "warn" : "bad" }, level),
          text,
        ),
      ),
    );
    byId("no-problems").hidden = problems.length > 0;
  }

  function show(overview) {
    const { service, resources, processes, at } = overview;
    const seconds = (Date.parse(at) - Date.parse(service.startedAt)) / 1_000;
    const ready = service.isReady ? "ready" : "not ready";
    setText(
      byId("service"),
      `${service.version}, Node.js ${service.node}, ${ready}, started ${durationOf(seconds)} ago`,
    );
    fill(
      byId("resources").tBodies[0],
      resourceColumns,
      resources.map((each) => resourceRow(each, overview)),
    );
    fill(byId("processes").tBodies[0], processColumns, processes.map(processRow));
    setText(byId("tiers"), tierText(overview));
    showProblems(overview.problems);
    draw(overview);
  }

  // The streams: sorted, searched and paged by the service.

  const streamColumns = [
    { title: "Identity", kind: "long", sort: "identity", isHeading: true },
    { title: "Resource", sort: "resource" },
    { title: "State", sort: "state" },
    { title: "Scope", kind: "long", sort: "scope" },
    { title: "Selectors", kind: "long" },
    { title: "Age", kind: "number", sort: "age" },
    { title: "Lag", kind: "number", sort: "lag" },
    { title: "Buffer", kind: "number", sort: "buffer" },
    { title: "Sent", kind: "number", sort: "sent" },
    { title: "Worker", kind: "number" },
  ];

  const view = { sort: "age", order: "desc", search: "", cursors: [""], isAsked: false };
  let request;
  let nextCursor;

  function scopeText({ scope, kind }) {
    if (scope === undefined) return kind;
    if ("key" in scope) return `key ${scope.key}`;
    if ("prefix" in scope) return scope.prefix === "" ? "all keys" : `prefix ${scope.prefix}`;
    return `from ${scope.from}${scope.to === null ? "" : ` to ${scope.to}`}`;
  }

  const stateKinds = { live: "good", stalled: "bad", "catching up": "warn" };

  function streamRow(stream) {
    const { identity, caller, resource, state, labelSelector, fieldSelector, worker } = stream;
    const { lagRevisions, bufferFill } = stream;
    return [
      caller ?? identity,
      resource ?? "–",
      { text: state, kind: stateKinds[state] ?? "" },
      scopeText(stream),
      [labelSelector, fieldSelector].filter((each) => each !== undefined).join("; ") || "–",
      durationOf(stream.ageSeconds),
      { text: numberOf(lagRevisions), kind: lagRevisions > 0 ? "warn" : "" },
      bufferFill === undefined ? "–" : `${Math.round(bufferFill * 100)} %`,
      numberOf(stream.messagesSent),
      worker === 0 ? "–" : String(worker),
    ];
  }

  async function loadStreams() {
    request?.abort();
    const own = new AbortController();
    request = own;
    const timeout = AbortSignal.timeout(requestMs);
    const signal = AbortSignal.any([own.signal, timeout]);
    const { sort, order, search, cursors } = view;
    const parameters = new URLSearchParams({
      sort,
      order,
      search,
      limit: pageSize,
      cursor: cursors.at(-1),
    });
    try {
      const response = await fetch(`/status.json?${parameters}`, { signal });
      if (!response.ok) throw new Error(await response.text());
      const { streams } = await response.json();
      if (!own.signal.aborted) showStreams(streams);
    } catch (error) {
      if (own.signal.aborted) return;
      setText(byId("matched"), `The streams can't be read: ${error.message}`);
    } finally {
      if (request === own) request = undefined;
    }
  }

  function showStreams({ total, matched, byState, items, next }) {
    fill(byId("stream-table").tBodies[0], streamColumns, items.map(streamRow));
    const states = Object.entries(byState).map(([state, number]) => `${numberOf(number)} ${state}`);
    const shown =
      view.search === "" ? numberOf(total) : `${numberOf(matched)} of ${numberOf(total)}`;
    const page = view.cursors.length === 1 ? "" : `, page ${view.cursors.length}`;
    setText(
      byId("matched"),
      `${shown} streams${states.length > 0 ? `: ${states.join(", ")}` : ""}${page}`,
    );
    // Updates are not announced, only what the reader has asked for.
    if (view.isAsked) setText(byId("announced"), byId("matched").textContent);
    view.isAsked = false;
    nextCursor = next;
    byId("next").disabled = next === undefined;
    byId("previous").disabled = view.cursors.length === 1;
    byId("first").disabled = view.cursors.length === 1;
  }

  function showSort() {
    for (const cell of document.querySelectorAll("#stream-table th[data-sort]")) {
      if (cell.dataset.sort !== view.sort) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", view.order === "asc" ? "ascending" : "descending");
    }
  }

  /** Shows the page that `cursors` ends with. */
  function goTo(cursors) {
    view.cursors = cursors;
    view.isAsked = true;
    void loadStreams();
  }

  byId("stream-table").tHead.addEventListener("click", ({ target }) => {
    const sort = target.closest("th[data-sort] button")?.parentElement.dataset.sort;
    if (sort === undefined) return;
    const isText = ["identity", "resource", "state", "scope"].includes(sort);
    if (view.sort === sort) view.order = view.order === "asc" ? "desc" : "asc";
    else view.order = isText ? "asc" : "desc";
    view.sort = sort;
    showSort();
    goTo([""]);
  });

  let searching;
  byId("search").addEventListener("input", ({ target }) => {
    clearTimeout(searching);
    searching = setTimeout(() => {
      view.search = target.value;
      goTo([""]);
    }, searchDelayMs);
  });
  byId("search-form").addEventListener("submit", (event) => event.preventDefault());
  byId("first").addEventListener("click", () => goTo([""]));
  byId("previous").addEventListener("click", () => goTo(view.cursors.slice(0, -1)));
  byId("next").addEventListener("click", () => {
    if (nextCursor !== undefined) goTo([...view.cursors, nextCursor]);
  });

  /** A request that takes longer than the interval is waited for. */
  function refreshStreams() {
    const isIdle = request === undefined;
    if (isIdle && !document.hidden && !byId("pause").checked) void loadStreams();
  }

  // A hidden page is not updated.

  let events;
  let retrying;

  function follow() {
    clearTimeout(retrying);
    events = new EventSource("/status/events");
    events.onmessage = ({ data }) => {
      setText(byId("connection"), "Live");
      byId("connection").className = "good";
      show(JSON.parse(data));
    };
    events.onerror = () => {
      setText(byId("connection"), "Not connected, retrying");
      byId("connection").className = "bad";
      if (events.readyState !== EventSource.CLOSED) return;
      // It was refused, such as in the drain.
      retrying = setTimeout(() => {
        if (!document.hidden) follow();
      }, retryMs);
    };
  }

  document.addEventListener("visibilitychange", () => {
    events.close();
    if (document.hidden) return;
    follow();
    refreshStreams();
  });

  head(byId("resources"), resourceColumns);
  head(byId("processes"), processColumns);
  head(byId("stream-table"), streamColumns);
  showSort();
  follow();
  void loadStreams();
  setInterval(refreshStreams, streamsMs);
})();
