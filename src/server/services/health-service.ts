import { status } from "@grpc/grpc-js";
import { WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import { type FrameParts, frameOf } from "../../wire/encode.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { HealthCheckRequest__Output } from "../../wire/generated/grpc/health/v1/HealthCheckRequest.ts";
import { healthService } from "../../wire/services.ts";
import { sendResponse } from "../calls/call-admission.ts";
import { MessageSender } from "../calls/message-sender.ts";
import type { ServiceHandlers } from "../calls/methods.ts";
import { refused } from "../calls/refusals.ts";
import type { ServerCall } from "../calls/server-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import { nextStreamId, type OpenStream } from "../kernel/open-streams.ts";

type ServingStatus = "SERVING" | "NOT_SERVING";

type ReportedStatus = ServingStatus | "SERVICE_UNKNOWN";

const listWatch = "watchfanout.v1.ListWatchService";
const write = "watchfanout.v1.WriteService";
const leases = "watchfanout.v1.LeaseService";
const ofResource = "resource/";

/**
 * Serves grpc.health.v1.Health: the statuses of the server as a whole (`""`), of its services, and of its resources. A service
 * that the caller may not know is like an unknown one. The server is SERVING once all caches have synced, and stays so until it
 * shuts down.
 *
 * A watch has at most one status outstanding. A client that does not read gets the newest status when it reads again. A
 * client that does not accept a status within the stall detector's timeout gets SLOW_CONSUMER.
 *
 * Responses count in the send budget and never wait for it: an orchestrator would end a process whose health does not
 * respond because other clients do not read.
 */
export class HealthService {
  /** By service name. */
  readonly #statuses: Map<string, ServingStatus>;
  readonly #context: ServiceContext;
  readonly #watches = new Set<HealthWatch>();
  #wasReady: boolean;
  #isDraining = false;
  /** The response of List for a caller that may know all services, encoded once per change. */
  #listed: FrameParts | undefined;

  constructor(context: ServiceContext) {
    this.#context = context;
    this.#wasReady = this.#isReady;
    const all = servingIf(this.#wasReady);
    this.#statuses = new Map([
      ["", all],
      [listWatch, all],
      [write, "SERVING"],
      ...(context.store === undefined ? [] : [[leases, "SERVING"] as const]),
    ]);
    for (const [name, resource] of context.resources) {
      this.#statuses.set(ofResource + name, servingIf(resource.ready));
      resource.onReadyChange((ready) => {
        this.#set(ofResource + name, servingIf(ready));
        if (this.#wasReady || this.#isDraining || !this.#isReady) return;
        this.#wasReady = true;
        this.#setServer("SERVING");
      });
    }
  }

  /** What callers may know has changed: each watch gets the status of its service if it is another for its caller. */
  recheck(): void {
    for (const watch of this.#watches) watch.report(this.#of(watch));
  }

  /** The server shuts down: it is NOT_SERVING from now on, and all watches end with DRAINING, after their last status. */
  drain(): void {
    this.#isDraining = true;
    this.#setServer("NOT_SERVING");
    for (const watch of this.#watches) watch.finish();
  }

  /** The handlers of the methods, by name. */
  readonly handlers: ServiceHandlers = {
    Check: {
      access: "open",
      handle: (call, request: HealthCheckRequest__Output) => this.#check(call, request),
    },
    List: {
      access: "open",
      handle: (call) => this.#list(call),
    },
    Watch: {
      access: "open",
      handle: (call, request: HealthCheckRequest__Output) => this.#watch(call, request),
    },
  };

  #check(call: ServerCall, { service }: HealthCheckRequest__Output): undefined {
    const serving = this.#statuses.get(service);
    if (serving !== undefined && this.#mayKnow(call.identity, service)) {
      this.#respond(call, responses[serving]);
      return;
    }
    const details = "There is no service of that name. List returns the names of all services.";
    call.end(refused(status.NOT_FOUND, details, "UNKNOWN_RESOURCE"));
  }

  #list(call: ServerCall): undefined {
    const known = [...this.#statuses].filter(([name]) => this.#mayKnow(call.identity, name));
    if (known.length < this.#statuses.size) {
      this.#respond(call, listResponse(known));
      return;
    }
    this.#listed ??= listResponse(known);
    this.#respond(call, this.#listed);
  }

  #respond(call: ServerCall, parts: FrameParts): void {
    sendResponse(this.#context, call, parts, this.#context.sendBudget.force(call.connection));
  }

  #watch(call: ServerCall, { service }: HealthCheckRequest__Output): undefined {
    if (call.isOver) return;
    const { streams } = this.#context;
    const watch = new HealthWatch(call, this.#known(service), this.#context, () => {
      this.#watches.delete(watch);
      streams.delete(watch);
    });
    const refusal = streams.makeRoom(watch.owner);
    if (refusal !== undefined) {
      watch.evict(refusal);
      return;
    }
    streams.add(watch);
    this.#watches.add(watch);
    watch.report(this.#of(watch));
    if (this.#isDraining) watch.finish();
  }

  #of({ service, identity }: HealthWatch): ReportedStatus {
    if (service === undefined || !this.#mayKnow(identity, service)) return "SERVICE_UNKNOWN";
    return this.#statuses.get(service) ?? "SERVICE_UNKNOWN";
  }

  /** Whether every resource is ready. */
  get #isReady(): boolean {
    return [...this.#context.resources.values()].every(({ ready }) => ready);
  }

  #setServer(status: ServingStatus): void {
    this.#set("", status);
    this.#set(listWatch, status);
  }

  #set(service: string, status: ServingStatus): void {
    this.#statuses.set(service, status);
    this.#listed = undefined;
    this.recheck();
  }

  /** Whether a caller may know a service: each but those of resources that it has no right on, and those that are not served. */
  #mayKnow(identity: Identity, service: string): boolean {
    const { authorizer, hasOwnServices } = this.#context;
    if (service.startsWith(ofResource)) {
      return authorizer.mayKnow(identity, service.slice(ofResource.length));
    }
    return hasOwnServices || ![listWatch, write, leases].includes(service);
  }

  /** The service's name from `#statuses`; undefined for an unknown service, whose name is not retained. */
  #known(service: string): string | undefined {
    for (const known of this.#statuses.keys()) if (known === service) return known;
    return undefined;
  }
}

function servingIf(ready: boolean): ServingStatus {
  return ready ? "SERVING" : "NOT_SERVING";
}

/** The response for each status, encoded once. */
const responses = {
  SERVING: checkResponse("SERVING"),
  NOT_SERVING: checkResponse("NOT_SERVING"),
  SERVICE_UNKNOWN: checkResponse("SERVICE_UNKNOWN"),
} as const satisfies Record<ReportedStatus, readonly [Uint8Array]>;

function checkResponse(serving: ReportedStatus): readonly [Uint8Array] {
  return [Buffer.concat(frameOf(healthService.Check.responseSerialize({ status: serving })))];
}

function listResponse(known: readonly (readonly [string, ServingStatus])[]): FrameParts {
  const statuses = known.map(([name, serving]) => [name, { status: serving }]);
  const response = { statuses: Object.fromEntries(statuses) };
  return frameOf(healthService.List.responseSerialize(response));
}

class HealthWatch extends MessageSender implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "health";
  /** Without the right its status becomes unknown, as if the service were. */
  readonly access = undefined;
  protected readonly waitsFor = "nothing";
  /** Undefined: an unknown service. */
  readonly service: string | undefined;
  readonly #onEnd: () => void;
  #reported: ReportedStatus | undefined;
  #newest: ReportedStatus | undefined;
  #isEnding = false;

  constructor(
    call: ServerCall,
    service: string | undefined,
    context: ServiceContext,
    onEnd: () => void,
  ) {
    super(call, context);
    this.service = service;
    this.#onEnd = onEnd;
    call.onOver(() => this.close());
  }

  report(serving: ReportedStatus): void {
    this.#newest = serving;
    this.pump();
  }

  /** Ends it behind its last status. */
  finish(): void {
    this.#isEnding = true;
    this.pump();
  }

  evict(error: WatchFanoutError): void {
    this.end(statusOf(error));
  }

  protected override next(): FrameParts | undefined {
    const newest = this.#newest;
    if (newest !== undefined && newest !== this.#reported) {
      this.#reported = newest;
      return responses[newest];
    }
    const message = "This replica is shutting down. Watch another replica.";
    if (this.#isEnding) this.evict(new WatchFanoutError("DRAINING", message));
    return undefined;
  }

  protected override onClosed(): void {
    this.#onEnd();
  }

  protected override slowStatus(): WireStatus {
    const message =
      "The client has not accepted the last status of this health watch in time. Watch again, and read the responses.";
    return statusOf(new WatchFanoutError("SLOW_CONSUMER", message));
  }
}
