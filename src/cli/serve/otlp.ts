import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { Config } from "../../config/config.ts";
import type { OtlpExport } from "../../telemetry/otlp.ts";
import { version } from "../output/version.ts";
import { otelEnvironment } from "./otel-environment.ts";

/** How long a process that shuts down waits until its last spans and metrics have been exported, in milliseconds. */
const flushTimeoutMs = 2_000;

/** What the shutdown of a process may take longer since it exports, in milliseconds. */
export function flushMs({ otlp }: Config): number {
  return otlp === undefined ? 0 : flushTimeoutMs;
}

/**
 * Opens the export of this process; undefined without --otlp-endpoint, or if OTEL_SDK_DISABLED is true. `worker`: its
 * number; undefined: the main process, which logs the variables of OpenTelemetry that have no effect. Rejects with a
 * StartError for an invalid OTEL_EXPORTER_OTLP_ENDPOINT that is needed.
 */
export async function openOtlp(
  { otlp, workers }: Config,
  deps: { readonly clock: Clock; readonly logger: Logger; readonly worker?: number },
): Promise<OtlpExport | undefined> {
  const { endpoint, isDisabled, ignored } = otelEnvironment(otlp?.endpoint, process.env);
  if (deps.worker === undefined) {
    if (isDisabled) deps.logger.info("OTEL_SDK_DISABLED is true: nothing is exported");
    if (ignored.length > 0) {
      deps.logger.info(
        { variables: ignored.join(", ") },
        "environment variables of OpenTelemetry have no effect; --otlp-endpoint begins an export",
      );
    }
  }
  if (otlp === undefined || endpoint === undefined) return undefined;
  // A service that exports nothing starts faster without it.
  const { OtlpExport } = await import("../../telemetry/otlp.ts");
  const servesWorkers = workers > 1 && deps.worker === undefined;
  return new OtlpExport(
    { ...otlp, endpoint },
    {
      ...{ version, flushTimeoutMs, servesWorkers, worker: undefined },
      ...deps,
    },
  );
}
