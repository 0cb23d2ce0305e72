import {
  invalidRequest,
  unknownWatch,
  WatchFanoutError,
  watchIdTaken,
} from "../../../base/errors.ts";
import { Turns } from "../../../base/turns.ts";
import { draining } from "../../../cacher/request/errors.ts";
import type { Access } from "../../../policy/access.ts";
import { statusOf } from "../../../wire/errors.ts";
import type { AddWatch__Output } from "../../../wire/generated/watchfanout/v1/AddWatch.ts";
import type { GrantCredit__Output } from "../../../wire/generated/watchfanout/v1/GrantCredit.ts";
import type { SubscribeRequest__Output } from "../../../wire/generated/watchfanout/v1/SubscribeRequest.ts";
import type { WatchRequest__Output } from "../../../wire/generated/watchfanout/v1/WatchRequest.ts";
import { listWatchService } from "../../../wire/services.ts";
import { auditAllowed } from "../../calls/audit.ts";
import { refusalOfRequest } from "../../calls/authorization.ts";
import { type BidiMethod, decoderOf } from "../../calls/methods.ts";
import { toClientError, tooMuchRetained } from "../../calls/refusals.ts";
import { admitStream, inTurn } from "../../calls/request-streams.ts";
import { type NextRequest, RefusedRequest, type ServerCall } from "../../calls/server-call.ts";
import { expiryOf, type ServiceContext } from "../../calls/service-context.ts";
import type { Opening } from "../../calls/stream-openings.ts";
import { freeRetainedBytes } from "../../calls/unary-call.ts";
import { Rounds } from "../../kernel/rounds.ts";
import { CompressedFrames } from "../compressed-frames.ts";
import { accessOfWatch, amountOf } from "../parse-requests.ts";
import { bytesOf, openWatch } from "../watch-handler.ts";
import { SubscribeStream, subscribeMethod } from "./subscribe-stream.ts";
import { type Credit, Subscription } from "./subscription.ts";

/** Interval at which streams are checked, in milliseconds. */
const checkIntervalMs = 1_000;

const decode = decoderOf<SubscribeRequest__Output>(listWatchService.Subscribe.path);

/**
 * Serves Subscribe: reads the requests of each stream in their order, and adds watches to it that are opened as those of
 * Watch. Each of them takes a turn of its caller to be opened, and later requests of its stream wait for that.
 */
export class SubscribeService {
  readonly #context: ServiceContext;
  readonly #streams: Rounds<SubscribeStream>;
  /** The requests that have arrived: one at a time of each stream. */
  readonly #requests: Turns;

  constructor(context: ServiceContext) {
    this.#context = context;
    this.#requests = new Turns(context.clock, Infinity);
    this.#streams = new Rounds(context.clock, {
      intervalMs: checkIntervalMs,
      // A stream may have thousands of watches.
      visitsPerStep: 1,
      visit: (stream) => stream.check(),
    });
  }

  get method(): BidiMethod {
    return {
      name: subscribeMethod,
      maxRequestBytes: this.#context.limits.maxRequestBytes,
      mayIdle: true,
      converse: (call, next) => void this.#converse(call, next),
    };
  }

  /** The resources drain: ends the streams, with DRAINING, behind their watches. */
  drain(): void {
    for (const stream of this.#streams) stream.endAfterWatches(draining());
  }

  async #converse(call: ServerCall, next: NextRequest): Promise<void> {
    const context = this.#context;
    if (!admitStream(call, context)) return;
    const [rounds, turns] = [this.#streams, this.#requests];
    const stream = new SubscribeStream(call, context, rounds, turns, expiryOf(context));
    stream.open();
    try {
      while (!stream.isOver) {
        const message = await next();
        if (message === undefined) {
          stream.halfClosed();
          return;
        }
        await inTurn(turns, call, async () => {
          if (!stream.isOver) await this.#handle(call, stream, message);
        });
        await stream.room();
      }
    } catch (error) {
      // Its request can't be read, or not in time.
      if (error instanceof RefusedRequest) stream.endWith(error.status, "INVALID_REQUEST");
      else if (!stream.isOver) stream.endBecause(error);
    }
  }

  async #handle(call: ServerCall, stream: SubscribeStream, message: Buffer): Promise<void> {
    const { request, fault } = decode(message);
    if (fault !== undefined) {
      stream.refuse(keyOf(idIn(message)), fault);
      return;
    }
    const named = request[request.request ?? "add"];
    const key = keyOf(named?.id);
    try {
      if (request.add !== undefined && request.add !== null) {
        await this.#add(call, stream, key, request.add);
        return;
      }
      if (request.progress?.id === "0") {
        stream.progress.requestOfAll(BigInt.asUintN(64, BigInt(request.progress.tag)));
        return;
      }
      if (request.request === undefined) {
        throw invalidRequest("request", "The request is empty. Set one of its fields.");
      }
      const watch = stream.watches.get(key);
      if (watch === undefined) throw unknownWatch(named?.id ?? key);
      if (request.remove !== undefined) stream.remove(watch);
      else if (request.progress !== undefined) stream.progress.requestOf(watch);
      else watch.grant(grantOf(watch, request.grant as GrantCredit__Output));
    } catch (error) {
      if (!(error instanceof WatchFanoutError)) throw error;
      stream.refuse(key, error);
    }
  }

  /** Adds a watch in its turn. Throws if its id can't be used; any other refusal is its end. */
  async #add(
    call: ServerCall,
    stream: SubscribeStream,
    key: number,
    { id, watch, messages, bytes }: AddWatch__Output,
  ): Promise<void> {
    if (key === 0) {
      throw invalidRequest(
        "add.id",
        `add.id is ${id}, not from 1 to ${Number.MAX_SAFE_INTEGER}. Choose another.`,
      );
    }
    if (stream.watches.has(key)) throw watchIdTaken(key);
    if (watch === null)
      throw invalidRequest("add.watch", "add.watch is absent. Say what to watch.");
    const credit = {
      messages: messages === undefined ? Infinity : amountOf("add.messages", messages),
      bytes: bytes === undefined ? Infinity : amountOf("add.bytes", bytes),
    };
    const access = accessOfWatch(watch);
    const denied = refusalOfRequest(this.#context, subscribeMethod, call, access);
    if (denied !== undefined) {
      stream.refuseWatch(key, denied);
      return;
    }
    const { authorizer } = this.#context;
    const { generation } = authorizer;
    // Since its turn, its stream may have ended for what another one needs.
    if (!(await this.#turn(call, stream, key, watch)) || stream.isOver) return;
    // The policy may have changed while it waited.
    const isCurrent = authorizer.generation === generation;
    const lost = isCurrent
      ? undefined
      : refusalOfRequest(this.#context, subscribeMethod, call, access);
    if (lost === undefined) this.#open(call, stream, { key, request: watch, access, credit });
    else stream.refuseWatch(key, lost);
  }

  /** Waits for its turn to be opened. Resolves to whether it may be. */
  #turn(
    call: ServerCall,
    stream: SubscribeStream,
    key: number,
    request: WatchRequest__Output,
  ): Promise<boolean> {
    const { memoryPressure, streamOpenings } = this.#context;
    const { connection, owner } = call;
    return new Promise((resolve) => {
      const resolveUnlessShed = (): void => {
        const shed = memoryPressure.refusal("stream");
        if (shed !== undefined) stream.refuseWatch(key, shed);
        resolve(shed === undefined);
      };
      const opening: Opening = {
        ...{ connection, owner },
        get isOver() {
          return stream.isOver;
        },
        onOver: (listener) => {
          stream.onOver = () => {
            listener();
            resolve(false);
          };
        },
        end: (ending) => {
          stream.sendEnd(key, ending);
          resolve(false);
        },
      };
      streamOpenings.add(opening, bytesOf(request), resolveUnlessShed);
    });
  }

  /** Opens a watch that its caller has the right to. */
  #open(call: ServerCall, stream: SubscribeStream, { key, request, access, credit }: Added): void {
    const context = this.#context;
    try {
      if (stream.ending !== undefined) throw stream.ending;
      const { maxSubscribeWatches: limit } = context.limits;
      if (stream.watches.size >= limit) throw tooManyWatches(limit);
      const opened = openWatch(context, call, request, {
        ...{ deadline: call.deadline, expiresAt: stream.expiresAt },
      });
      const watch = new Subscription(stream, {
        ...{
          key,
          credit,
          now: context.clock.now(),
          watch: opened.watch,
          resource: opened.resource,
        },
        compressed: CompressedFrames.of(call, context.compressor),
        // Without a policy the right can't be lost, and the watch does not retain what it needs.
        access: context.authorizer.hasPolicy ? access : undefined,
      });
      auditAllowed(context, subscribeMethod, call, access, undefined);
      stream.add(watch);
      this.#retain(watch, opened.retainedBytes);
    } catch (cause) {
      const error = toClientError(cause, subscribeMethod, context.logger, call);
      auditAllowed(context, subscribeMethod, call, access, statusOf(error).code);
      stream.refuseWatch(key, error);
    }
  }

  /** Charges what the watch retains of its request. */
  #retain(watch: Subscription, bytes: number): void {
    const { retainedRequests } = this.#context;
    if (bytes <= freeRetainedBytes || watch.isOver) return;
    const { connection } = watch.owner;
    const charge = retainedRequests.reserve(connection, 0, () =>
      watch.evict(tooMuchRetained(retainedRequests)),
    );
    watch.retainedRequest = charge;
    charge.resize(bytes);
  }
}

/** A watch to be added. */
interface Added {
  readonly key: number;
  readonly request: WatchRequest__Output;
  readonly access: Access;
  readonly credit: Credit;
}

/** The id in a request that can't be read; undefined: that can't be read either. */
function idIn(message: Buffer): string | undefined {
  try {
    const request = listWatchService.Subscribe.requestDeserialize(message);
    return request[request.request ?? "add"]?.id;
  } catch {
    return undefined;
  }
}

/** The id of a watch; 0 for one that no watch can have. */
function keyOf(id: string | undefined): number {
  const key = Number(id ?? "0");
  return Number.isSafeInteger(key) && key > 0 ? key : 0;
}

/** What a request adds to the credit of a watch. Throws INVALID_REQUEST if the watch does not use it. */
function grantOf(watch: Subscription, { messages, bytes }: GrantCredit__Output): Credit {
  const credit = {
    messages: amountOf("grant.messages", messages),
    bytes: amountOf("grant.bytes", bytes),
  };
  for (const [name, isUsed] of [
    ["messages", watch.usesMessages],
    ["bytes", watch.usesBytes],
  ] as const) {
    if (isUsed || credit[name] === 0) continue;
    throw invalidRequest(
      `grant.${name}`,
      `The watch ${watch.key} was added without a limit of ${name}, so none can be granted. Leave them out.`,
    );
  }
  return credit;
}

function tooManyWatches(limit: number): WatchFanoutError {
  const metadata = { limit_name: "max-subscribe-watches", limit: String(limit) };
  return new WatchFanoutError(
    "TOO_MANY_STREAMS",
    `This stream has ${limit} watches, the maximum. Remove some, or open another stream.`,
    { metadata },
  );
}
