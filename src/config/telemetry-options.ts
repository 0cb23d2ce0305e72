import type { OptionDefinition } from "./option-definition.ts";
import { choice, collectorUrl, duration, ratio } from "./value-types.ts";

/** The options of the log, and of what is exported by OTLP. */
export const telemetryOptions = {
  "otlp-endpoint": {
    schema: collectorUrl,
    value: "URL|env",
    help:
      "Export spans and metrics to this OpenTelemetry collector, by OTLP over HTTP with protobuf: to URL/v1/traces and " +
      "URL/v1/metrics. env: to that of OTEL_EXPORTER_OTLP_ENDPOINT. The environment variables OTEL_SDK_DISABLED, " +
      "OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _CLIENT_CERTIFICATE, _CLIENT_KEY, _COMPRESSION and _TIMEOUT, " +
      "OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES apply; others are named in the log.",
    defaultHelp: "nothing is exported",
  },
  "trace-ratio": {
    schema: ratio,
    value: "RATIO",
    help:
      "Part of the calls without a trace of the client that are traced, from 0 to 1. A call with one is traced if the " +
      "client records it. Needs --otlp-endpoint.",
    default: "0",
  },
  "otlp-metrics-interval": {
    schema: duration("0s"),
    value: "DURATION",
    help: "Interval at which metrics are exported. 0s: never. Needs --otlp-endpoint.",
    default: "60s",
  },
  "log-level": {
    schema: choice(["trace", "debug", "info", "warn", "error", "fatal", "silent"]),
    value: "LEVEL",
    help: "Least severe level to log: trace, debug, info, warn, error, fatal or silent.",
    default: "info",
  },
  "log-format": {
    schema: choice(["text", "json"]),
    value: "FORMAT",
    help: "Format of the log, which goes to stderr: text or json.",
    defaultHelp: "text on a terminal, otherwise json",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;
