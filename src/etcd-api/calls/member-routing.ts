import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import type { Upstream } from "../../etcd/client/upstream.ts";
import { type Askable, askUpstream } from "../../etcd/client/upstream-call.ts";
import type { UpstreamConnection } from "../../etcd/client/upstream-connection.ts";
import { noUser } from "../../etcd/wire/error-texts.ts";
import type { MemberChoice } from "../../etcd/wire/methods.ts";
import { mayBeSerializableTxn, readRangeRequest } from "../../etcd/wire/range-request.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { NewestHeader } from "../cached/newest-header.ts";

/** A RangeRequest of the smallest key, and one that a member answers from its own state. */
const anyKey = Buffer.from("0a0100", "hex");
const ownKey = Buffer.from("0a01003801", "hex");

const rangePath = "/etcdserverpb.KV/Range";
const txnPath = "/etcdserverpb.KV/Txn";

/** Where a call goes. */
export interface Route {
  /** The connection that it has to go to. Undefined: to any member. */
  readonly connection?: UpstreamConnection | undefined;
  /** What has to show before that its member has what clients know of. */
  readonly after?: "a linearizable read" | "its revision";
}

const anywhere: Route = {};
const upToDate: Route = { after: "a linearizable read" };
const notBehind: Route = { after: "its revision" };

/** Chooses the members of calls, so that no answer is older than one that was given before. */
export class MemberRouting {
  readonly #upstream: Upstream;
  readonly #newestHeader: NewestHeader;
  readonly #clock: Clock;
  /** The questions for the revision of a member that are in flight: thousands of reads may need it at once. */
  readonly #asking = new Map<UpstreamConnection, Promise<unknown>>();
  /** Whether etcd last answered a read without a user by a refusal, which shows no revision: then it is not asked. */
  #showsNothing = false;

  constructor(upstream: Upstream, newestHeader: NewestHeader, clock: Clock) {
    this.#upstream = upstream;
    this.#newestHeader = newestHeader;
    this.#clock = clock;
  }

  /** `start`: the request, with gRPC's prefix, or the beginning of a large one. */
  routeOf(path: string, choice: MemberChoice, start: Buffer): Route {
    if (choice === "any" || this.#newestHeader.floor === 0) return anywhere;
    if (choice === "afterRead") return upToDate;
    const message = start.subarray(prefixSize);
    if (path === txnPath) {
      const isBehind = this.#upstream.isSpread && mayBeSerializableTxn(message);
      return isBehind ? notBehind : anywhere;
    }
    const request = readRangeRequest(message);
    if (request?.serializable === false) return anywhere;
    const connection = this.#upstream.find((each) => !this.#newestHeader.mayBeBehind(each));
    if (connection !== undefined) return { connection };
    // It may not be a valid one, or have fields that are not known.
    return request === undefined && !this.#upstream.isSpread ? anywhere : notBehind;
  }

  /** Resolves to whether the member of this connection has everything that was said before. Never rejects. */
  async bringUpToDate(connection: UpstreamConnection, after: Route["after"]): Promise<boolean> {
    // Without a quorum a member has no answer to a linearizable read, and may have all of it.
    if (after === "its revision" && (await this.#hasShown(connection))) return true;
    return (await this.confirmRead(only(connection))) === undefined;
  }

  /** Asks a member for its revision. Resolves to whether that is at least what clients know of now. */
  async #hasShown(connection: UpstreamConnection): Promise<boolean> {
    // What becomes known meanwhile may be newer than the answer, and the call was made before.
    const { floor } = this.#newestHeader;
    const before = this.#asking.get(connection);
    if (before !== undefined) {
      await before;
      if (!this.#newestHeader.mayBeBehind(connection, floor)) return true;
    }
    if (this.#showsNothing) return false;
    // One that is in flight now has begun after this call.
    await (this.#asking.get(connection) ?? this.#ask(connection));
    return !this.#newestHeader.mayBeBehind(connection, floor);
  }

  #ask(connection: UpstreamConnection): Promise<unknown> {
    const asked = this.#read(only(connection), ownKey).finally(() =>
      this.#asking.delete(connection),
    );
    this.#asking.set(connection, asked);
    return asked;
  }

  /** Resolves to why etcd does not answer a linearizable read; undefined: it does. Never rejects. */
  confirmRead(upstream: Askable = this.#upstream): Promise<string | undefined> {
    return this.#read(upstream, anyKey);
  }

  async #read(upstream: Askable, request: Buffer): Promise<string | undefined> {
    const metadata = { "content-type": "application/grpc" };
    const answer = await askUpstream(upstream, rangePath, metadata, request, this.#clock);
    const { code, details, message, source } = answer;
    if (message !== undefined && source !== undefined)
      this.#newestHeader.observeMessage(source, message);
    // With authentication etcd refuses a read without a user, as it should.
    const isAnswer = code === status.OK || code === status.PERMISSION_DENIED || details === noUser;
    if (isAnswer) this.#showsNothing = message === undefined;
    return isAnswer ? undefined : details;
  }
}

function only(connection: UpstreamConnection): Askable {
  return { whenAvailable: (call) => call.open(connection) };
}
