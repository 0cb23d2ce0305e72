import {
  type handleUnaryCall,
  type ServerWritableStream,
  status,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { WatchFanoutError } from "../errors.ts";
import type { Decoded } from "../wire/decode.ts";
import { statusOf } from "../wire/errors.ts";
import type { HealthCheckRequest__Output } from "../wire/generated/grpc/health/v1/HealthCheckRequest.ts";
import type { HealthCheckResponse } from "../wire/generated/grpc/health/v1/HealthCheckResponse.ts";
import type { HealthListResponse } from "../wire/generated/grpc/health/v1/HealthListResponse.ts";
import { resetUnlessClosed, type StreamContext } from "./calls.ts";
import { forgetRequest, http2StreamOf } from "./http2-stream.ts";
import type { OpenStream } from "./open-streams.ts";

export type ServingStatus = "SERVING" | "NOT_SERVING";

type Check = Decoded<HealthCheckRequest__Output>;
type Told = ServingStatus | "SERVICE_UNKNOWN";

/**
 * grpc.health.v1.Health.
 *
 * A watch has one status on its way at the most: whoever does not read gets the newest when it does.
 */
export class HealthService {
  readonly #statuses: Map<string, ServingStatus>;
  readonly #context: StreamContext;
  readonly #watches = new Set<HealthWatch>();
  #ended = false;

  /** `statuses` has all services that there are. */
  constructor(statuses: ReadonlyMap<string, ServingStatus>, context: StreamContext) {
    this.#statuses = new Map(statuses);
    this.#context = context;
  }

  /** Of a service that there is. */
  set(service: string, serving: ServingStatus): void {
    this.#statuses.set(service, serving);
    for (const watch of this.#watches) watch.tell(this.#of(watch.service));
  }

  /** Ends all watches, behind the statuses that they have been told. */
  end(): void {
    this.#ended = true;
    for (const watch of this.#watches) watch.end();
  }

  readonly handlers: UntypedServiceImplementation = {
    Check: ((call, callback) => {
      const { request, fault } = call.request;
      if (fault !== undefined) return callback(statusOf(fault));
      const serving = this.#statuses.get(request.service);
      if (serving !== undefined) return callback(null, { status: serving });
      const details = `No service of that name is known here; List tells which are.`;
      callback({ code: status.NOT_FOUND, details });
    }) satisfies handleUnaryCall<Check, HealthCheckResponse>,

    List: ((call, callback) => {
      const { fault } = call.request;
      if (fault !== undefined) return callback(statusOf(fault));
      const statuses = [...this.#statuses].map(([name, serving]) => [name, { status: serving }]);
      callback(null, { statuses: Object.fromEntries(statuses) });
    }) satisfies handleUnaryCall<Decoded<unknown>, HealthListResponse>,

    Watch: (call: ServerWritableStream<Check, HealthCheckResponse>) => {
      const { request, fault } = call.request;
      if (fault !== undefined) {
        call.emit("error", statusOf(fault));
        return;
      }
      const watch = new HealthWatch(call, this.#known(request.service), this.#context, () => {
        this.#watches.delete(watch);
        this.#context.streams.delete(watch);
      });
      forgetRequest(call);
      if (!watch.open) return;
      const { streams } = this.#context;
      const refusal = streams.makeRoom(watch.connection);
      if (refusal !== undefined) return watch.evict(refusal);
      streams.add(watch);
      this.#watches.add(watch);
      watch.tell(this.#of(watch.service));
      if (this.#ended) watch.end();
    },
  };

  #of(service: string | undefined): Told {
    return (service === undefined ? undefined : this.#statuses.get(service)) ?? "SERVICE_UNKNOWN";
  }

  /** The name as it is kept here: of a service that there is not, and that there will not be, nothing is kept. */
  #known(service: string): string | undefined {
    for (const known of this.#statuses.keys()) if (known === service) return known;
    return undefined;
  }
}

class HealthWatch implements OpenStream {
  readonly connection: object;
  /** undefined: one that there is not. */
  readonly service: string | undefined;
  readonly #call: ServerWritableStream<Check, HealthCheckResponse>;
  readonly #context: StreamContext;
  #told: Told | undefined;
  #newest: Told | undefined;
  #busy = false;
  #ending = false;
  readonly #onClose: () => void;
  open = true;

  constructor(
    call: ServerWritableStream<Check, HealthCheckResponse>,
    service: string | undefined,
    context: StreamContext,
    onClose: () => void,
  ) {
    this.#call = call;
    this.#context = context;
    this.service = service;
    this.#onClose = onClose;
    const close = (): void => {
      this.open = false;
      onClose();
    };
    call.once("cancelled", close);
    const stream = http2StreamOf(call);
    this.connection = stream?.session ?? call;
    stream?.once("close", close);
    if (call.cancelled || stream?.destroyed === true) this.open = false;
  }

  tell(serving: Told): void {
    this.#newest = serving;
    this.#send();
  }

  end(): void {
    this.#ending = true;
    this.#send();
  }

  evict(error: WatchFanoutError): void {
    this.open = false;
    this.#onClose();
    this.#call.emit("error", statusOf(error));
    const { endFlushMs, clock } = this.#context;
    resetUnlessClosed(http2StreamOf(this.#call), endFlushMs, clock);
  }

  #send(): void {
    if (this.#busy || !this.open) return;
    const newest = this.#newest;
    if (newest !== undefined && newest !== this.#told) {
      this.#told = newest;
      this.#busy = true;
      this.#call.write({ status: newest }, () => {
        this.#busy = false;
        this.#send();
      });
    } else if (this.#ending) {
      this.open = false;
      const message = "This replica is shutting down. Watch another one.";
      this.#call.emit("error", statusOf(new WatchFanoutError("DRAINING", message)));
    }
  }
}
