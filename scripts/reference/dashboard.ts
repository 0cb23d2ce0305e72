/** A query of a panel: PromQL, and the text of its legend. */
type Query = readonly [expr: string, legend: string];

interface Panel {
  readonly title: string;
  /** Grafana's name of the unit. */
  readonly unit: string;
  readonly queries: readonly Query[];
}

const of = 'job=~"$job", instance=~"$instance"';
const byResource = `${of}, resource=~"$resource"`;
const watch = 'method="watchfanout.v1.ListWatchService/Watch"';

/** The rows of the dashboard, each with what it answers as its title. */
const rows: readonly (readonly [title: string, panels: readonly Panel[]])[] = [
  [
    "Are clients served?",
    [
      panel("Open streams", "short", [`watch_fanout_open_streams{${of}}`, "{{instance}}"]),
      panel("Watches ended, by reason", "ops", [
        `sum by (reason) (rate(watch_fanout_ended_watches_total{${of}}[$__rate_interval]))`,
        "{{reason}}",
      ]),
      panel(
        "Age of events: in the cache, dispatched, sent",
        "s",
        stageLatency("ingest", 0.99),
        stageLatency("dispatch", 0.5),
        stageLatency("dispatch", 0.99),
        stageLatency("delivery", 0.99),
      ),
      panel("Duration of calls, p99", "s", [
        "histogram_quantile(0.99, sum by (le, method) (rate(" +
          `watch_fanout_rpc_duration_seconds_bucket{${of}, ${watch.replace("=", "!=")}}[$__rate_interval])))`,
        "{{method}}",
      ]),
      panel("Calls ended, by code", "ops", [
        `sum by (code) (rate(watch_fanout_rpc_duration_seconds_count{${of}}[$__rate_interval]))`,
        "{{code}}",
      ]),
      panel("Sent to clients", "Bps", [
        `sum by (instance) (rate(watch_fanout_rpc_sent_bytes_total{${of}}[$__rate_interval]))`,
        "{{instance}}",
      ]),
    ],
  ],
  [
    "Do the caches follow the store?",
    [
      panel("Ready (1) or not (0)", "short", [
        `watch_fanout_cache_ready{${byResource}}`,
        "{{instance}} {{resource}}",
      ]),
      panel("Stale for", "s", [
        `watch_fanout_cache_stale_seconds{${byResource}}`,
        "{{instance}} {{resource}}",
      ]),
      panel("Lag, in revisions", "short", [
        `watch_fanout_cache_lag_revisions{${byResource}}`,
        "{{instance}} {{resource}}",
      ]),
      panel("Events received", "ops", [
        `sum by (instance, resource) (rate(watch_fanout_events_received_total{${byResource}}[$__rate_interval]))`,
        "{{instance}} {{resource}}",
      ]),
      panel(
        "Watch on the store: resumed, listed again",
        "short",
        [
          `increase(watch_fanout_upstream_reconnects_total{${byResource}}[$__rate_interval])`,
          "{{instance}} {{resource}} resumed",
        ],
        [
          `increase(watch_fanout_upstream_relists_total{${byResource}}[$__rate_interval])`,
          "{{instance}} {{resource}} listed",
        ],
      ),
      panel("Objects", "short", [
        `watch_fanout_cache_objects{${byResource}}`,
        "{{instance}} {{resource}}",
      ]),
    ],
  ],
  [
    "Does the embedded store keep up?",
    [
      panel("File, of --data-bytes", "percentunit", [
        `watch_fanout_data_file_bytes{${of}} / watch_fanout_data_limit_bytes{${of}}`,
        "{{instance}}",
      ]),
      panel("Revisions of history", "short", [
        `watch_fanout_data_revision{${of}} - watch_fanout_data_oldest_revision{${of}}`,
        "{{instance}}",
      ]),
      panel("Commits, p99", "s", [
        "histogram_quantile(0.99, sum by (le, instance) (rate(" +
          `watch_fanout_data_commit_duration_seconds_bucket{${of}}[$__rate_interval])))`,
        "{{instance}}",
      ]),
    ],
  ],
  [
    "Do the watchers keep up?",
    [
      panel("Watchers, by state", "short", [
        `sum by (state) (watch_fanout_watchers{${byResource}})`,
        "{{state}}",
      ]),
      panel("Fullest buffer", "percentunit", [
        `max by (instance, resource) (watch_fanout_watcher_buffer_fullest_ratio{${byResource}})`,
        "{{instance}} {{resource}}",
      ]),
      panel("Event window: age of the oldest event", "s", [
        `watch_fanout_event_window_oldest_age_seconds{${byResource}}`,
        "{{instance}} {{resource}}",
      ]),
      panel("Events dispatched", "ops", [
        `sum by (instance, resource) (rate(watch_fanout_events_dispatched_total{${byResource}}[$__rate_interval]))`,
        "{{instance}} {{resource}}",
      ]),
      panel(
        "Coalesced backlogs",
        "short",
        [`watch_fanout_coalesced_backlogs{${byResource}}`, "{{instance}} {{resource}} backlogs"],
        [`watch_fanout_coalesced_objects{${byResource}}`, "{{instance}} {{resource}} objects"],
      ),
      panel("Streams paced by --max-send-rate", "short", [
        `watch_fanout_paced_streams{${of}}`,
        "{{instance}}",
      ]),
    ],
  ],
  [
    "Is the process healthy?",
    [
      panel(
        "Event-loop delay and garbage collection, p99",
        "s",
        [`watch_fanout_event_loop_delay_p99_seconds{${of}}`, "{{instance}} delay"],
        [
          "histogram_quantile(0.99, sum by (le, instance, kind) (rate(" +
            `watch_fanout_gc_duration_seconds_bucket{${of}}[$__rate_interval])))`,
          "{{instance}} {{kind}}",
        ],
      ),
      panel("Memory in use, of its ceiling", "percentunit", [
        `watch_fanout_memory_used_bytes{${of}} / watch_fanout_memory_ceiling_bytes{${of}}`,
        "{{instance}} {{limit}}",
      ]),
      panel("Calls shed", "ops", [
        `sum by (kind) (rate(watch_fanout_shed_calls_total{${of}}[$__rate_interval]))`,
        "{{kind}}",
      ]),
      panel(
        "Memory of caches",
        "bytes",
        [`sum by (instance) (watch_fanout_cache_object_bytes{${of}})`, "{{instance}} objects"],
        [`sum by (instance) (watch_fanout_event_window_bytes{${of}})`, "{{instance}} event window"],
        [`sum by (instance) (watch_fanout_chunk_cache_bytes{${of}})`, "{{instance}} chunk cache"],
      ),
      panel(
        "Memory held for clients",
        "bytes",
        [`watch_fanout_pool_bytes{${of}}`, "{{instance}} {{pool}}"],
        [`sum by (instance) (watch_fanout_coalesced_bytes{${of}})`, "{{instance}} coalesced"],
        [
          `sum by (instance) (watch_fanout_retained_snapshot_bytes{${of}})`,
          "{{instance}} snapshots",
        ],
      ),
      panel("Connections", "short", [`watch_fanout_connections{${of}}`, "{{instance}}"]),
    ],
  ],
  [
    "Which calls are refused, and why?",
    [
      panel("Refused at a limit of the caller", "ops", [
        `sum by (limit) (rate(watch_fanout_caller_refusals_total{${of}}[$__rate_interval]))`,
        "{{limit}}",
      ]),
      panel("Denied by the policy", "ops", [
        `sum by (verb) (rate(watch_fanout_denied_calls_total{${of}}[$__rate_interval]))`,
        "{{verb}}",
      ]),
      panel("Calls, by source of their identity", "ops", [
        `sum by (source) (rate(watch_fanout_authentications_total{${of}}[$__rate_interval]))`,
        "{{source}}",
      ]),
      panel("Stopped at the level of HTTP/2", "ops", [
        `sum by (kind) (rate(watch_fanout_http2_attacks_total{${of}}[$__rate_interval]))`,
        "{{kind}}",
      ]),
      panel("New versions of files", "short", [
        `sum by (file, result) (increase(watch_fanout_file_reloads_total{${of}}[$__rate_interval]))`,
        "{{file}} {{result}}",
      ]),
      panel("Audit log: lines lost", "short", [
        `increase(watch_fanout_audit_dropped_lines_total{${of}}[$__rate_interval])`,
        "{{instance}}",
      ]),
    ],
  ],
];

/** How old events are when they reach a stage. */
function stageLatency(stage: "ingest" | "dispatch" | "delivery", quantile: number): Query {
  return [
    `histogram_quantile(${quantile}, sum by (le, resource) (rate(` +
      `watch_fanout_${stage}_latency_seconds_bucket{${byResource}}[$__rate_interval])))`,
    `{{resource}} ${stage} p${quantile * 100}`,
  ];
}

const panelsPerLine = 3;
const panelHeight = 7;
/** Of 24, Grafana's columns. */
const panelWidth = 24 / panelsPerLine;

function panel(title: string, unit: string, ...queries: readonly Query[]): Panel {
  return { title, unit, queries };
}

/** The dashboard for Grafana, as JSON. */
export function dashboard(): string {
  const panels: object[] = [];
  let y = 0;
  for (const [title, drawn] of rows) {
    panels.push({
      ...{ id: panels.length + 1, type: "row", title, collapsed: false },
      ...{ gridPos: { h: 1, w: 24, x: 0, y }, panels: [] },
    });
    y++;
    for (const [index, shown] of drawn.entries()) {
      const x = (index % panelsPerLine) * panelWidth;
      panels.push(timeSeries(shown, panels.length + 1, x, y));
      if (x + panelWidth === 24) y += panelHeight;
    }
  }
  return JSON.stringify(
    {
      ...{ uid: "watch-fanout", title: "watch-fanout", tags: ["watch-fanout"] },
      ...{ schemaVersion: 39, editable: true, graphTooltip: 1, refresh: "30s" },
      time: { from: "now-3h", to: "now" },
      templating: {
        list: [
          { name: "datasource", label: "Data source", type: "datasource", query: "prometheus" },
          variable("job", "label_values(watch_fanout_build_info, job)"),
          variable("instance", 'label_values(watch_fanout_build_info{job=~"$job"}, instance)'),
          variable("resource", `label_values(watch_fanout_cache_ready{${of}}, resource)`),
        ],
      },
      annotations: {
        list: [
          {
            ...{ name: "Alerts", enable: true, iconColor: "red", datasource: dataSource },
            expr: 'ALERTS{alertname=~"WatchFanout.*", alertstate="firing"}',
            titleFormat: "{{alertname}}",
            textFormat: "{{instance}} {{resource}}",
          },
        ],
      },
      panels,
    },
    undefined,
    1,
  );
}

const dataSource = { type: "prometheus", uid: "$datasource" };

function timeSeries({ title, unit, queries }: Panel, id: number, x: number, y: number): object {
  return {
    ...{ id, type: "timeseries", title, datasource: dataSource },
    gridPos: { h: panelHeight, w: panelWidth, x, y },
    fieldConfig: { defaults: { unit, min: 0, custom: { fillOpacity: 10 } }, overrides: [] },
    options: { legend: { displayMode: "list" }, tooltip: { mode: "multi", sort: "desc" } },
    targets: queries.map(([expr, legendFormat], index) => ({
      ...{ refId: String.fromCharCode(65 + index), datasource: dataSource, expr, legendFormat },
    })),
  };
}

function variable(name: string, query: string): object {
  return {
    ...{ name, type: "query", datasource: dataSource, refresh: 2, sort: 1 },
    ...{ definition: query, query: { query, refId: name } },
    ...{ multi: true, includeAll: true, allValue: ".*", current: { text: "All", value: "$__all" } },
  };
}
