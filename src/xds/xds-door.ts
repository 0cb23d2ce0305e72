import { invalidRequest, WatchFanoutError } from "../base/errors.ts";
import type { TimeSlicedWork } from "../base/event-loop-turns.ts";
import { Turns } from "../base/turns.ts";
import { draining } from "../cacher/request/errors.ts";
import type { Access } from "../policy/access.ts";
import { auditAllowed } from "../server/calls/audit.ts";
import { refusalOfRequest } from "../server/calls/authorization.ts";
import { type BidiMethod, type Door, methodOf } from "../server/calls/methods.ts";
import { admitStream } from "../server/calls/request-streams.ts";
import type { NextRequest, ServerCall } from "../server/calls/server-call.ts";
import type { ServiceContext } from "../server/calls/service-context.ts";
import { Rounds } from "../server/kernel/rounds.ts";
import { statusOf } from "../wire/errors.ts";
import type { Change } from "./change.ts";
import { type Refusal, Refusals } from "./refusals.ts";
import { type DiscoveryRequest, readRequest } from "./request.ts";
import {
  type ServedType,
  ServedTypes,
  type ServedTypesOptions,
  type TypeReport,
} from "./served-types.ts";
import { type XdsMethod, XdsStream } from "./stream.ts";
import type { XdsSubscription } from "./subscription.ts";
import { aggregatedMethods, type TypeName } from "./types.ts";

/** Interval at which streams are checked, in milliseconds, and how many of them between two yields. */
const checkIntervalMs = 1_000;
const checksPerStep = 64;

/** What operators see of xDS. Can be sent between processes. */
export interface XdsReport {
  readonly streams: number;
  readonly types: readonly TypeReport[];
  /** What clients have refused, the newest last; and how many times, by type. */
  readonly refusals: readonly Refusal[];
  readonly refused: Readonly<Record<TypeName, number>>;
}

/** Serves the discovery services of xDS, aggregated and of each type. */
export class XdsDoor implements Door {
  readonly #types: ServedTypes;
  readonly #refusals: Refusals;
  readonly #streams: Rounds<XdsStream>;
  /** The requests that change something: one at a time of each stream. */
  readonly #requests: Turns;

  /** Loads the descriptor set, which takes about 0.1 s. */
  constructor(options: ServedTypesOptions) {
    const { clock, logger } = options;
    this.#types = new ServedTypes(options);
    this.#refusals = new Refusals(clock, logger);
    this.#requests = new Turns(clock, Infinity);
    this.#streams = new Rounds(clock, {
      ...{ intervalMs: checkIntervalMs, visitsPerStep: checksPerStep },
      visit: (stream) => stream.check(),
    });
  }

  /** Follows the resources, until `close`. */
  start(): void {
    this.#types.start();
  }

  methods(context: ServiceContext): ReadonlyMap<string, BidiMethod> {
    const methods = new Map<string, BidiMethod>();
    const shared = { context, types: this.#types.all, streams: this.#streams };
    const add = (paths: readonly [string, string], url: string): void => {
      for (const [index, path] of paths.entries()) {
        const method = { ...shared, name: methodOf(path), isDelta: index === 1, url };
        methods.set(path, {
          name: method.name,
          maxRequestBytes: context.limits.maxRequestBytes,
          mayIdle: true,
          converse: (call, next) => void this.#converse(call, next, method),
        });
      }
    };
    add(aggregatedMethods, "");
    for (const { type } of this.#types.all) add(type.methods, type.url);
    return methods;
  }

  drain(): void {
    for (const stream of this.#streams) stream.evict(draining());
  }

  /** Stops following. Idempotent. */
  close(): void {
    this.#types.close();
  }

  report(): XdsReport {
    return {
      streams: this.#streams.size,
      types: this.#types.all.map((type) => type.report()),
      refusals: this.#refusals.all,
      refused: this.#refusals.counts,
    };
  }

  async #converse(call: ServerCall, next: NextRequest, method: XdsMethod): Promise<void> {
    const { context } = method;
    if (!admitStream(call, context)) return;
    const shed = context.memoryPressure.refusal("stream");
    if (shed !== undefined) {
      call.end(statusOf(shed));
      return;
    }
    const stream = new XdsStream(call, method);
    try {
      while (!stream.isOver) {
        const message = await next();
        if (message === undefined) {
          stream.halfClosed();
          return;
        }
        const asked = this.#read(stream, message);
        // Most requests only confirm a response.
        if (asked === undefined) continue;
        await this.#requests.run(call.owner, this.#change(call, stream, asked));
      }
    } catch (error) {
      if (!stream.isOver) stream.endBecause(error);
    }
  }

  /** Reads a request; undefined: it asks for nothing else than before. Throws INVALID_REQUEST. */
  #read(stream: XdsStream, message: Buffer): Asked | undefined {
    const { context, isDelta, url } = stream.method;
    const request = readRequest(message, isDelta, context.limits.maxSubscribeWatches);
    const { typeUrl, nonce, refusal, node } = request;
    if (url !== "" && typeUrl !== "" && typeUrl !== url) {
      throw invalidRequest(
        "type_url",
        `This method is for ${url}, and the request is for ${typeUrl}. Use aggregated discovery for several types.`,
      );
    }
    const type = this.#types.named(typeUrl === "" ? url : typeUrl);
    if (node !== "") stream.node = node;
    const subscription = stream.subscription(type);
    const isLast = nonce !== "" && subscription.answered(nonce);
    if (nonce !== "") stream.answered();
    if (refusal !== undefined) {
      const by = { identity: stream.identity.name, node: stream.node };
      const refused = isLast ? subscription.sent : undefined;
      this.#refusals.add(type.type.name, refused, refusal, by);
    }
    const change = subscription.changeBy(request);
    return change === undefined ? undefined : { type, subscription, change, request };
  }

  /** Applies what a request changes, if its caller may ask for it. Throws PERMISSION_DENIED, or that it is too much. */
  *#change(
    call: ServerCall,
    stream: XdsStream,
    { type, subscription, change, request }: Asked,
  ): TimeSlicedWork<void> {
    if (stream.isOver) return;
    const { context, name: method } = stream.method;
    const { authorizer, limits } = context;
    const { added, all } = change;
    const limit = limits.maxSubscribeWatches;
    if (stream.names + subscription.growthBy(change) > limit) throw tooManyNames(limit);
    const asked: Access[] = all === true ? [type.accessToAll] : [];
    for (const name of added) {
      if (name === "") throw invalidRequest("resource_names", "A name is empty. Leave it out.");
      asked.push(type.accessTo(name));
    }
    let generation: number;
    do {
      generation = authorizer.generation;
      for (const access of asked) {
        const denied = refusalOfRequest(context, method, call, access);
        if (denied !== undefined) throw denied;
        yield;
      }
    } while (generation !== authorizer.generation);
    if (stream.isOver) return;
    for (const access of asked) auditAllowed(context, method, call, access, undefined);
    subscription.apply(change, request.versions);
    stream.retain();
    stream.pump();
  }
}

/** What a request asks for. */
interface Asked {
  readonly type: ServedType;
  readonly subscription: XdsSubscription;
  readonly change: Change;
  readonly request: DiscoveryRequest;
}

function tooManyNames(limit: number): WatchFanoutError {
  const metadata = { limit_name: "max-subscribe-watches", limit: String(limit) };
  return new WatchFanoutError(
    "TOO_MANY_STREAMS",
    `This stream would ask for more than ${limit} names, the maximum. Ask for fewer, or for all.`,
    { metadata },
  );
}
