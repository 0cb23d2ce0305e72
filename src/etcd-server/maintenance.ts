import { hostname } from "node:os";
import { crc32 } from "node:zlib";
import { keyBytes } from "../model/key-bytes.ts";
import { bytesField, number, text } from "../protobuf/fields.ts";
import type { RevisionRequirement } from "../storage/storage.ts";
import { type EtcdError, etcdErrors, unimplemented } from "./protocol/errors.ts";
import { decode } from "./protocol/requests.ts";
import { raftTerm, type ServedStore } from "./protocol/served-store.ts";

/** The version of etcd whose answers these are. */
const etcdVersion = "3.6.0";

/** For how long a write that was refused for lack of space is an alarm, in milliseconds. */
const alarmMs = 60_000;

const noSpaceAlarm = 1;

/** Number of objects that are hashed in one step. */
const pageSize = 5_000;

/** What concerns the only member: etcd's services Maintenance and Cluster, and that of Auth which asks whether there is any. */
export class MaintenanceService {
  readonly #served: ServedStore;
  readonly #clientUrl: () => string;
  /** In the clock's milliseconds. */
  #refusedAt = -Infinity;

  /** `clientUrl`: where clients reach the service. */
  constructor(served: ServedStore, clientUrl: () => string) {
    this.#served = served;
    this.#clientUrl = clientUrl;
  }

  /** A write was refused for lack of space. */
  refusedWrite(): void {
    this.#refusedAt = this.#served.clock.now();
  }

  async status(): Promise<Buffer> {
    const { revision, memberId, store } = this.#served;
    return this.#served.response(
      text(0x12, etcdVersion),
      number(0x18, store.bytes),
      number(0x20, memberId),
      number(0x28, revision),
      number(0x30, raftTerm),
      number(0x38, revision),
      ...(this.#isFull ? [text(0x42, `memberID:${memberId} alarm:NOSPACE `)] : []),
      number(0x48, store.bytes),
      text(0x5a, etcdVersion),
    );
  }

  /** Alarms are raised and disarmed by the store alone. */
  async alarm(message: Buffer): Promise<Buffer> {
    const { action } = decode.alarm(message);
    if (action === "ACTIVATE") {
      throw unimplemented("raising an alarm", "It raises NOSPACE itself while it is full.");
    }
    if (action === "DEACTIVATE" || !this.#isFull) return this.#served.response();
    const alarm = [number(0x08, this.#served.memberId), number(0x10, noSpaceAlarm)];
    return this.#served.response(bytesField(0x12, ...alarm));
  }

  /** Without an effect: the store defragments nothing. */
  async defragment(): Promise<Buffer> {
    return this.#served.response();
  }

  async hash(): Promise<Buffer> {
    return this.#served.response(number(0x10, await this.#hashAt(0)));
  }

  async hashKv(message: Buffer): Promise<Buffer> {
    const asked = Number(decode.hashKv(message).revision);
    const revision = asked > 0 ? asked : this.#served.revision;
    if (revision < this.#served.compacted) throw etcdErrors.compacted();
    const hash = await this.#hashAt(revision);
    const { compacted } = this.#served;
    return this.#served.response(
      number(0x10, hash),
      number(0x18, compacted),
      number(0x20, revision),
    );
  }

  async memberList(): Promise<Buffer> {
    const member = [number(0x08, this.#served.memberId), text(0x12, hostname())];
    return this.#served.response(bytesField(0x12, ...member, text(0x22, this.#clientUrl())));
  }

  /** There are no users. Their revision is that of an etcd without any. */
  async authStatus(): Promise<Buffer> {
    return this.#served.response(number(0x18, 1));
  }

  /** Clients with a user's name continue without a token then. */
  async authenticate(): Promise<Buffer> {
    throw etcdErrors.noAuth();
  }

  get #isFull(): boolean {
    return this.#served.clock.now() - this.#refusedAt < alarmMs;
  }

  /** The checksum of all objects at a revision; 0: the newest. It is not that of an etcd with the same keys. */
  async #hashAt(revision: number): Promise<number> {
    const { store, clock } = this.#served;
    const interval = { from: "", to: undefined };
    let at: RevisionRequirement = { match: revision > 0 ? "EXACT" : "LINEARIZABLE", revision };
    let hash = 0;
    for (let startAfter: string | undefined; ; ) {
      const page = await store.range({ interval, startAfter, limit: pageSize, at });
      for (const { key, value, modRevision, createRevision, version, lease } of page.items) {
        hash = crc32(keyBytes(key), hash);
        hash = crc32(`/${createRevision}/${modRevision}/${version}/${lease}/`, hash);
        hash = crc32(value, hash);
      }
      if (page.next === undefined) return hash;
      startAfter = page.next;
      at = { match: "EXACT", revision: page.revision };
      await new Promise<void>((resolve) => clock.setImmediate(resolve));
    }
  }
}

/** What to use in place of methods that the embedded store has not, by the beginnings of their paths. */
const instead: readonly (readonly [path: string, sentence: string])[] = [
  [
    "etcdserverpb.Maintenance/Snapshot",
    "Its file is no snapshot of etcd: copy it with watch-fanout backup.",
  ],
  ["etcdserverpb.Maintenance", "It has one member, of one version."],
  ["etcdserverpb.Cluster", "It has one member: move to etcd for more."],
  [
    "etcdserverpb.Auth",
    "It has no users of etcd: watch-fanout recognises callers, and --policy says what each may do.",
  ],
  [
    "v3lockpb.Lock",
    "Use the recipes of your client library, such as etcdctl lock, which need KV and leases alone.",
  ],
  [
    "v3electionpb.Election",
    "Use the recipes of your client library, such as etcdctl elect, which need KV and leases alone.",
  ],
  ["", "Use KV, Watch and Lease."],
];

/** The error of a method, `package.Service/Method`, that the embedded store has not. */
export function unimplementedMethod(method: string): EtcdError {
  const [, sentence = ""] = instead.find(([path]) => method.startsWith(path)) ?? [];
  return unimplemented(method, sentence);
}
