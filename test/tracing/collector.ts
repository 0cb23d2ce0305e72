import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { gunzipSync } from "node:zlib";
import { Message } from "../foreign/protobuf.ts";

/** The value of an attribute. */
type Value = string | number | boolean | undefined;

/** A span as the collector has received it. */
export interface CollectedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: the span is a root. */
  readonly parentId: string;
  readonly traceState: string;
  readonly name: string;
  readonly kind: "server" | "client" | "other";
  readonly attributes: Readonly<Record<string, Value>>;
  readonly events: readonly string[];
  /** Whether its status is an error. */
  readonly isError: boolean;
  readonly resource: Readonly<Record<string, Value>>;
}

/** A metric as the collector has received it. */
export interface CollectedMetric {
  readonly name: string;
  readonly unit: string;
  /** Of a histogram's first data point. */
  readonly attributes: Readonly<Record<string, Value>>;
  readonly resource: Readonly<Record<string, Value>>;
}

/** How a collector answers. "silence": never. */
type Answer = number | "silence";

const kinds: Readonly<Record<number, "server" | "client">> = { 2: "server", 3: "client" };

/** A small OpenTelemetry collector: OTLP over HTTP with protobuf, decoded without code of OpenTelemetry. */
export class Collector implements AsyncDisposable {
  readonly spans: CollectedSpan[] = [];
  readonly metrics: CollectedMetric[] = [];
  readonly headers: IncomingMessage["headers"][] = [];
  /** Number of requests that have arrived, answered or not. */
  requests = 0;
  readonly #server: Server;
  readonly #answer: Answer;
  readonly #changed: (() => void)[] = [];

  private constructor(answer: Answer) {
    this.#answer = answer;
    this.#server = createServer((request, response) => void this.#take(request, response));
  }

  static async start(answer: Answer = 200): Promise<Collector> {
    const collector = new Collector(answer);
    await new Promise<void>((resolve) => collector.#server.listen(0, "127.0.0.1", resolve));
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The first span that matches, once it has arrived. */
  async span(matches: (span: CollectedSpan) => boolean): Promise<CollectedSpan> {
    return this.until(() => this.spans.find(matches));
  }

  /** What `find` returns, once that is defined. */
  async until<T>(find: () => T | undefined): Promise<T> {
    for (;;) {
      const found = find();
      if (found !== undefined) return found;
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.requests++;
    const body = await buffer(request);
    this.headers.push(request.headers);
    const isGzip = request.headers["content-encoding"] === "gzip";
    const message = new Message(isGzip ? gunzipSync(body) : body);
    if (request.url === "/v1/traces") this.spans.push(...spansOf(message));
    if (request.url === "/v1/metrics") this.metrics.push(...metricsOf(message));
    if (this.#answer !== "silence") {
      response.writeHead(this.#answer, { "content-type": "application/x-protobuf" }).end();
    }
    for (const resolve of this.#changed.splice(0)) resolve();
  }
}

/** Of an ExportTraceServiceRequest. */
function spansOf(request: Message): CollectedSpan[] {
  return request.messages(1).flatMap((ofResource) => {
    const resource = attributesOf(ofResource.message(1), 1);
    return ofResource.messages(2).flatMap((ofScope) =>
      ofScope.messages(2).map((span) => ({
        traceId: span.bytes(1).toString("hex"),
        spanId: span.bytes(2).toString("hex"),
        traceState: span.text(3),
        parentId: span.bytes(4).toString("hex"),
        name: span.text(5),
        kind: kinds[span.number(6)] ?? "other",
        attributes: attributesOf(span, 9),
        events: span.messages(11).map((event) => event.text(2)),
        isError: (span.message(15)?.number(3) ?? 0) === 2,
        resource,
      })),
    );
  });
}

/** Of an ExportMetricsServiceRequest. */
function metricsOf(request: Message): CollectedMetric[] {
  return request.messages(1).flatMap((ofResource) => {
    const resource = attributesOf(ofResource.message(1), 1);
    return ofResource
      .messages(2)
      .flatMap((ofScope) => ofScope.messages(2))
      .map((metric) => {
        const [point] = metric.message(9)?.messages(1) ?? [];
        const attributes = attributesOf(point, 9);
        return { name: metric.text(1), unit: metric.text(3), attributes, resource };
      });
  });
}

/** The attributes in a field of KeyValues. */
function attributesOf(message: Message | undefined, field: number): Record<string, Value> {
  const pairs = message?.messages(field) ?? [];
  return Object.fromEntries(pairs.map((pair) => [pair.text(1), attributeValue(pair.message(2))]));
}

function attributeValue(value: Message | undefined): Value {
  if (value === undefined) return undefined;
  if (value.has(2)) return value.number(2) === 1;
  return value.has(3) ? value.number(3) : value.text(1);
}
