import { onTestFinished } from "vitest";
import { type Served, startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { encode, type Fields } from "../foreign/protobuf.ts";
import { type RawCall, RawConnection, type RawEnd } from "../server/http2/raw-connection.ts";
import type { Collector } from "./collector.ts";

/** The trace of a client, and the id of its span. */
export const traceId = "0af7651916cd43dd8448eb211c80319c";
export const clientSpan = "b7ad6b7169203331";
/** The headers of a client that records its trace. */
export const traced = { traceparent: `00-${traceId}-${clientSpan}-01` };
/** The headers of a client that does not record it. */
export const unrecorded = { traceparent: `00-${traceId}-${clientSpan}-00` };

type Headers = Record<string, string>;

/** A service in a process of its own, whose spans go to a collector. */
export class TracedService {
  readonly served: Served;
  readonly #connection: RawConnection;

  private constructor(served: Served) {
    this.served = served;
    this.#connection = new RawConnection(Number(served.grpc.split(":")[1]));
  }

  /** Starts it and waits until it is ready. It ends with the test. */
  static async start(
    collector: Pick<Collector, "url">,
    args: readonly string[],
    env: Headers = {},
    endpoint: string = collector.url,
  ): Promise<TracedService> {
    const served = await startServe(
      ["--otlp-endpoint", endpoint, "--otlp-metrics-interval", "0s", ...args],
      env,
    );
    onTestFinished(() => served.process[Symbol.asyncDispose]());
    await untilStatus(`${served.admin}/readyz`, 200);
    return new TracedService(served);
  }

  put(key: string, headers: Headers = {}): Promise<RawEnd> {
    return this.call("WriteService/Put", { 1: "all", 2: key, 3: Buffer.from("secret") }, headers);
  }

  get(key: string, headers: Headers = {}): Promise<RawEnd> {
    return this.call("ListWatchService/Get", { 1: "all", 2: key }, headers);
  }

  call(method: string, request: Fields, headers: Headers): Promise<RawEnd> {
    return this.#call(`/watchfanout.v1.${method}`, request, headers).drain().ended;
  }

  /** A unary call of etcd's API. */
  etcd(method: string, headers: Headers, request: Fields = {}): Promise<RawEnd> {
    return this.#call(`/etcdserverpb.${method}`, request, headers).drain().ended;
  }

  health(headers: Headers): Promise<RawEnd> {
    return this.#call("/grpc.health.v1.Health/Check", {}, headers).drain().ended;
  }

  watch(request: Fields, headers: Headers): RawCall {
    return this.#call("/watchfanout.v1.ListWatchService/Watch", request, headers);
  }

  metrics(): Promise<string> {
    return untilStatus(`${this.served.admin}/metrics`, 200);
  }

  /** Shuts it down. Returns its exit code and log. */
  async stop(): Promise<{ readonly code: number | null; readonly stderr: string }> {
    this.#connection.session.close();
    this.served.process.kill("SIGTERM");
    return this.served.process.exit;
  }

  #call(path: string, request: Fields, headers: Headers): RawCall {
    return this.#connection.call(path, encode(request), headers);
  }
}
