import type { TimeSlicedWork } from "../../../base/event-loop-turns.ts";
import type { OpenStream } from "../../kernel/open-streams.ts";
import type { StreamCounts, StreamGroup, StreamScope } from "./status.ts";
import {
  behindAfterMs,
  clientOf,
  groupIdOf,
  kindOf,
  type StreamsOrigin,
  scopeKey,
  shownScope,
  stateOf,
  unreadSince,
} from "./stream-report.ts";

/** Number of streams that are counted in one step. */
const streamsPerStep = 32;
/** Number of clients that are distinguished, by resource and state; and of further ones, only for streams that are behind. */
const maxClients = 256;
const maxClientsBehind = 256;
/** Number of scopes of each that are distinguished. With more they are one group. */
const maxScopes = 8;
/** Number of groups that are shown. */
const maxGroups = 50;

/** Can be sent between processes, as the following. */
interface Counts {
  streams: number;
  behind: number;
  /** Since when the one that is longest behind is, in milliseconds since 1970. */
  behindSince: number | undefined;
  worstLag: number | undefined;
}

/** The streams of one client with the same resource, kind and state. */
interface ClientStreams {
  /** Undefined: of all clients beyond the bound. */
  readonly identity: string | undefined;
  readonly caller: string | undefined;
  readonly resource: string | undefined;
  readonly kind: string;
  readonly state: string;
  readonly counts: Counts;
  /** By `scopeKey`. Undefined: a kind without scopes, or too many. */
  scopes: Map<string, { readonly scope: StreamScope; readonly counts: Counts }> | undefined;
  hasManyScopes: boolean;
}

type ClientKey = Omit<ClientStreams, "counts" | "scopes" | "hasManyScopes">;

/** The streams of a process, counted. Can be sent between processes. */
export interface StreamTally {
  /** When they were counted, in milliseconds since 1970. */
  readonly at: number;
  readonly clients: readonly ClientStreams[];
}

/** Counts all streams in one pass, in time slices. What it holds has a bound that does not depend on their number. */
export function* tallyStreams(
  streams: Iterable<OpenStream>,
  { now, epochMs }: StreamsOrigin,
): TimeSlicedWork<StreamTally> {
  const clients = new ClientTable();
  let seen = 0;
  for (const stream of streams) {
    if (++seen % streamsPerStep === 0) yield;
    if (stream.id === undefined) continue;
    const { watchStatus, resource } = stream;
    const unread = unreadSince(stream, now);
    const isBehind = unread !== undefined && now - unread >= behindAfterMs;
    const counts: Counts = {
      streams: 1,
      behind: isBehind ? 1 : 0,
      behindSince: isBehind ? unread + epochMs : undefined,
      worstLag: watchStatus?.lagRevisions,
    };
    const key = { ...clientOf(stream), resource, kind: kindOf(stream), state: stateOf(stream) };
    const client = clients.at(key, isBehind);
    add(client.counts, counts);
    if (watchStatus !== undefined) addScope(client, shownScope(watchStatus.scope), counts);
  }
  return { at: now + epochMs, clients: clients.all };
}

/** Merges the tallies of several processes. Undefined without any. */
export function countsOfTallies(tallies: readonly StreamTally[]): StreamCounts | undefined {
  if (tallies.length === 0) return undefined;
  const clients = new ClientTable();
  for (const each of tallies.flatMap((tally) => tally.clients)) {
    const client = clients.at(each, each.counts.behind > 0);
    add(client.counts, each.counts);
    if (each.hasManyScopes) setManyScopes(client);
    for (const { scope, counts } of each.scopes?.values() ?? []) addScope(client, scope, counts);
  }
  const sum = emptyCounts();
  const byState: Record<string, number> = Object.create(null);
  for (const { state, counts } of clients.all) {
    add(sum, counts);
    byState[state] = (byState[state] ?? 0) + counts.streams;
  }
  const groups = clients.all.flatMap(groupsOf).sort(worstFirst);
  const shown = groups.slice(0, maxGroups);
  return {
    at: timeOf(Math.min(...tallies.map(({ at }) => at))),
    total: sum.streams,
    byState,
    behind: sum.behind,
    behindSince: sum.behindSince === undefined ? undefined : timeOf(sum.behindSince),
    worstLagRevisions: sum.worstLag,
    groups: shown.map((group) => ({ id: groupIdOf(group), ...group })),
    otherGroups: groups.length - shown.length,
    otherStreams: groups.slice(maxGroups).reduce((all, { streams }) => all + streams, 0),
  };
}

/** The clients that are distinguished. Further ones count together, by state. */
class ClientTable {
  readonly #clients = new Map<string, ClientStreams>();
  #others = 0;

  get all(): readonly ClientStreams[] {
    return [...this.#clients.values()];
  }

  at(key: ClientKey, isBehind: boolean): ClientStreams {
    const { identity, caller, resource, kind, state } = key;
    const name = `${state}\0${kind}\0${resource ?? ""}\0${caller ?? ""}\0${identity ?? ""}`;
    const known = this.#clients.get(identity === undefined ? `${state}\0` : name);
    if (known !== undefined) return known;
    const told = this.#clients.size - this.#others;
    const hasRoom = told < (isBehind ? maxClients + maxClientsBehind : maxClients);
    if (identity !== undefined && hasRoom) return this.#add(name, key);
    const others = this.#clients.get(`${state}\0`);
    if (others !== undefined) return others;
    this.#others++;
    const unnamed = { identity: undefined, caller: undefined, resource: undefined };
    const added = this.#add(`${state}\0`, { ...unnamed, kind: "watch", state });
    setManyScopes(added);
    return added;
  }

  #add(name: string, { identity, caller, resource, kind, state }: ClientKey): ClientStreams {
    const client: ClientStreams = {
      ...{ identity, caller, resource, kind, state },
      ...{ counts: emptyCounts(), scopes: undefined, hasManyScopes: false },
    };
    this.#clients.set(name, client);
    return client;
  }
}

function addScope(client: ClientStreams, scope: StreamScope, counts: Counts): void {
  if (client.hasManyScopes) return;
  client.scopes ??= new Map();
  const key = scopeKey(scope);
  const known = client.scopes.get(key);
  if (known !== undefined) add(known.counts, counts);
  else if (client.scopes.size < maxScopes) client.scopes.set(key, { scope, counts: { ...counts } });
  else setManyScopes(client);
}

function setManyScopes(client: ClientStreams): void {
  client.hasManyScopes = true;
  client.scopes = undefined;
}

function groupsOf(client: ClientStreams): Omit<StreamGroup, "id">[] {
  const { identity, caller, resource, kind, state, scopes, hasManyScopes } = client;
  const common = { identity, caller, resource, kind, state, hasManyScopes };
  if (scopes === undefined) return [{ ...common, ...shownCounts(client.counts) }];
  return [...scopes.values()].map(({ scope, counts }) => ({
    ...{ ...common, scope, ...shownCounts(counts) },
  }));
}

function shownCounts({ streams, behind, behindSince, worstLag }: Counts) {
  return {
    ...{ streams, behind, worstLagRevisions: worstLag },
    behindSince: behindSince === undefined ? undefined : timeOf(behindSince),
  };
}

/** Groups with streams that are behind first, then by lag, then by size. */
function worstFirst(a: Omit<StreamGroup, "id">, b: Omit<StreamGroup, "id">): number {
  if (a.behind > 0 !== b.behind > 0) return a.behind > 0 ? -1 : 1;
  const lag = (b.worstLagRevisions ?? -1) - (a.worstLagRevisions ?? -1);
  return lag === 0 ? b.streams - a.streams : lag;
}

function emptyCounts(): Counts {
  return { streams: 0, behind: 0, behindSince: undefined, worstLag: undefined };
}

function add(to: Counts, { streams, behind, behindSince, worstLag }: Counts): void {
  to.streams += streams;
  to.behind += behind;
  if (behindSince !== undefined) to.behindSince = Math.min(to.behindSince ?? Infinity, behindSince);
  if (worstLag !== undefined) to.worstLag = Math.max(to.worstLag ?? 0, worstLag);
}

function timeOf(ms: number): string {
  return new Date(ms).toISOString();
}
