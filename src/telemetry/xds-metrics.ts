import type { Meter } from "@opentelemetry/api";
import { byEach, counter, gauge, registerMetrics } from "../base/metric-table.ts";
import { typeNames } from "../xds/types.ts";
import type { XdsReport } from "../xds/xds-door.ts";

/** Registers what is served by xDS, by type. */
export function registerXdsMetrics(meter: Meter, door: { report(): XdsReport }): void {
  registerMetrics(meter, () => [[door.report()]], {
    watch_fanout_xds_streams: gauge("{stream}", "Open streams of xDS.", ({ streams }) => streams),
    watch_fanout_xds_resources: gauge("{resource}", "Resources that xDS serves.", ({ types }) =>
      byEach("type", types, ({ type, served }) => [type, served]),
    ),
    watch_fanout_xds_invalid_values: gauge(
      "{value}",
      "Stored values that are invalid and not served. The status page has them.",
      ({ types }) => byEach("type", types, ({ type, invalid }) => [type, invalid]),
    ),
    watch_fanout_xds_refusals: counter(
      "{response}",
      "Responses of xDS that clients have refused (NACK).",
      ({ refused }) => byEach("type", typeNames, (type) => [type, refused[type]]),
    ),
  });
}
