import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { Config } from "../../config/config.ts";
import { collectorUrl } from "../../config/value-types.ts";
import type { OtlpExport } from "../../telemetry/otlp.ts";
import { version } from "../output/version.ts";
import { StartError } from "./start-error.ts";

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

/** Where the exporters of OpenTelemetry's SDKs send to if no variable says it. */
const defaultEndpoint = "http://localhost:4318";

/** Variables of OpenTelemetry that the exporters and the resource read themselves. */
const applied =
  /^OTEL_(SERVICE_NAME|RESOURCE_ATTRIBUTES|EXPORTER_OTLP_((TRACES|METRICS)_)?(HEADERS|TIMEOUT|COMPRESSION|CERTIFICATE|CLIENT_CERTIFICATE|CLIENT_KEY))$/;

/** What the standard environment variables of OpenTelemetry mean for the export. */
interface OtelEnvironment {
  /** The base URL of the collector; undefined: nothing is exported. */
  readonly endpoint: string | undefined;
  /** Whether OTEL_SDK_DISABLED is why nothing is exported. */
  readonly isDisabled: boolean;
  /** Names of the variables that are set and have no effect, sorted. */
  readonly ignored: readonly string[];
}

/**
 * Reads the variables. `given` is `--otlp-endpoint`: a URL, or `env` for that of OTEL_EXPORTER_OTLP_ENDPOINT. A variable
 * alone begins no export. As OpenTelemetry specifies, an empty variable is not set. Throws a StartError for an invalid URL.
 */
export function otelEnvironment(
  given: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
): OtelEnvironment {
  const isSet = (name: string): boolean => (env[name] ?? "") !== "";
  const isDisabled = given !== undefined && env["OTEL_SDK_DISABLED"]?.toLowerCase() === "true";
  const url = "OTEL_EXPORTER_OTLP_ENDPOINT";
  const isExporting = given !== undefined && !isDisabled;
  const hasEffect = (name: string): boolean => {
    if (name === "OTEL_SDK_DISABLED") return true;
    return isExporting && (applied.test(name) || (name === url && given === "env"));
  };
  const ignored = Object.keys(env)
    .filter((name) => name.startsWith("OTEL_") && isSet(name) && !hasEffect(name))
    .sort();
  if (!isExporting) return { endpoint: undefined, isDisabled, ignored };
  if (given !== "env") return { endpoint: given, isDisabled, ignored };
  const { success, data } = collectorUrl.safeParse(env[url] || defaultEndpoint);
  if (success && data !== "env") return { endpoint: data, isDisabled, ignored };
  throw new StartError(
    `${url}, which --otlp-endpoint env reads, is not the URL of an OpenTelemetry collector, such as ${defaultEndpoint}.`,
  );
}
