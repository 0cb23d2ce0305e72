import { Model, type State } from "./compile.ts";
import { FollowedWrites } from "./follow-writes.ts";
import { modelFile, start } from "./list-watch.ts";
import {
  inKeyOrder,
  type Step,
  type Trace,
  type TracedEvent,
  type TracedResponse,
} from "./trace.ts";
import { type Fields, isList, type QuintMap, QuintSet, type Value } from "./values.ts";

/*
 * Follows a trace in the model: each recorded step must be a step that the model may take, with what the client saw as
 * its outcome. Between them the model takes the steps that are not recorded, such as those of the event window, as late
 * as it can: just before the next recorded step that needs them, or that would prevent them.
 */

/** The outcome: the steps that the model took; or the first step that it can't take. */
export type Followed =
  | { readonly isBehaviour: true; readonly taken: number }
  | { readonly isBehaviour: false; readonly at: number; readonly step: Step; readonly why: string };

const maxRevisions = 1_000_000;

/** The model with as many keys as traces have, and without the bounds of what is under way. */
export function modelOfTraces(keys: number): Model {
  return new Model(modelFile, { keyCount: keys, queueLength: 1_000, inboxLength: 1_000 });
}

export function followTrace(model: Model, trace: Trace): Followed {
  const follower = new Follower(model, trace);
  for (const [at, step] of trace.steps.entries()) {
    const why = follower.take(step, at);
    if (why !== undefined) return { isBehaviour: false, at, step, why };
  }
  return { isBehaviour: true, taken: follower.taken };
}

/** What is recorded of one stream of the client. */
interface TracedStream {
  readonly call: Step & { readonly step: "call" };
  readonly responses: readonly TracedResponse[];
  readonly end: (Step & { readonly step: "end" }) | undefined;
}

function isRead({ begins }: TracedStream["call"]): boolean {
  return begins === "list" || begins === "any";
}

const mustRelist = new Set(["REVISION_TOO_OLD", "HISTORY_LOST", "HISTORY_CHANGED"]);

class Follower {
  taken = 0;
  readonly #model: Model;
  readonly #trace: Trace;
  /** Each read is one of a client of its own. */
  #client: string;
  readonly #writes: FollowedWrites;
  readonly #streams: readonly TracedStream[];
  #state: State;
  #at = 0;
  /** The number of streams that were called, whether the model has called the last one, and how many of its responses are in its queue. */
  #called = 0;
  #isCalled = false;
  #queued = 0;
  #received = 0;
  /** What was under way to a replica when etcd was restored, which the model applies before. */
  readonly #early = new Set<Step>();
  /** The ids of histories as the trace numbers them, by those of the model. */
  readonly #ids = new Map<number, number>();

  constructor(model: Model, trace: Trace) {
    this.#model = model;
    this.#trace = trace;
    this.#client = trace.isLatestState ? "latest" : "selected";
    this.#streams = streamsOf(trace.steps);
    const readers = this.#streams.flatMap(({ call }, i) => (isRead(call) ? [`read ${i}`] : []));
    this.#writes = new FollowedWrites({
      act: (action, ...args) => this.#act(action, ...args),
      write: () => this.#world["write"] as Fields,
      mod: (key) => this.#modOf(key),
    });
    this.#state = start(model, {
      ...{
        revisions: maxRevisions,
        faults: maxRevisions,
        restores: maxRevisions,
        writes: maxRevisions,
      },
      ...{ changes: [], matches: [], roots: trace.roots, relays: trace.relays },
      ...{
        clients: [this.#client, ...readers],
        calls: [],
        hasBackfill: true,
        hasProgress: false,
        hasHistories: false,
      },
    });
    // etcd begins with revision 1.
    this.#must("writeElsewhere");
  }

  /** Takes a recorded step. Returns why the model can't; undefined: it can. */
  take(step: Step, at: number): string | undefined {
    this.#at = at;
    switch (step.step) {
      case "commit":
        return this.#commit(step);
      case "compact":
        return this.#compact(step.revision);
      case "restore":
        return this.#restore(step);
      case "start":
        return this.#start(step.server);
      case "follow":
        return this.#follow(step);
      case "apply":
        return this.#apply(step);
      case "call":
        this.#called++;
        [this.#isCalled, this.#queued, this.#received] = [false, 0, 0];
        if (isRead(step)) this.#client = `read ${this.#called - 1}`;
        this.#settle();
        return undefined;
      case "response":
        return this.#response(step.response);
      case "end":
        return this.#end(step);
      case "write":
        return this.#writes.begin(step, this.#nextWritten());
      case "written":
        return this.#writes.end(step);
    }
  }

  // ---- etcd

  #commit(step: Step & { step: "commit" }): string | undefined {
    const { revision, matching, others, removed, isOwn } = step;
    this.#settle();
    for (const server of this.#servers) this.#askInTime(server);
    const keys = [matching, others, removed].map((some) => QuintSet.of(some));
    if (isOwn === true) {
      const why = this.#writes.commit(step);
      if (why !== undefined) return why;
    } else if (!this.#act("transact", ...keys)) return "etcd can't commit that";
    this.#writes.refuse();
    if (this.#revision !== revision) return `etcd's revision is ${this.#revision}`;
    this.#settle();
    return undefined;
  }

  #compact(revision: number): string | undefined {
    this.#settle();
    for (const root of this.#trace.roots) {
      this.#sendAhead(root);
      if (this.#cache(root)["step"] === "list") this.#list(root);
    }
    // A cache keeps what it has read of the time before its list, which it can't read any more.
    for (const server of this.#servers) this.#backfill(server, 0);
    return this.#act("compact", revision) ? undefined : "etcd can't compact that";
  }

  #restore(step: Step & { step: "restore" }): string | undefined {
    const { history, revision, isAnnounced } = step;
    this.#settle();
    for (const root of this.#trace.roots) {
      if (this.#cache(root)["step"] === "list") this.#list(root);
      for (const next of this.#appliesAhead(root)) {
        if (this.#applyOne(root, next) === undefined) this.#early.add(next);
      }
    }
    const isRestored = this.#act("restore", history, revision, isAnnounced);
    return isRestored ? undefined : "etcd can't be restored to that";
  }

  // ---- replicas

  #start(server: string): string | undefined {
    if (this.#cache(server)["isReady"] === true || this.#cache(server)["step"] !== "ask") {
      this.#beforeLoss(server);
      if (!this.#act("crash", server)) return "it can't crash";
    }
    return undefined;
  }

  /** A replica asks for the revision of its list before etcd has a newer one. */
  #askInTime(root: string): void {
    const next = this.#nextFollow(root);
    if (next?.after !== this.#revision || this.#isResumed(root, next.after)) return;
    const before = this.#state;
    if (!this.#ask(root)) this.#state = before;
  }

  #isResumed(root: string, after: number): boolean {
    const cache = this.#cache(root);
    return cache["isReady"] === true && this.#lastApplied(root) === after;
  }

  #ask(root: string): boolean {
    if (this.#isRelay(root)) return this.#askUpstream(root);
    for (let i = 0; i < 4; i++) {
      const step = this.#cache(root)["step"];
      if (step === "list") return this.#cache(root)["asked"] === this.#revision;
      if (step === "ask") return this.#act("ask", root);
      const action = step === "open" || step === "resume" ? "openWatch" : "breakWatch";
      const isPolled = step === "read" && this.#act("pollHistory", root);
      if (
        !isPolled &&
        !(step === "confirm" && this.#act("confirm", root) && this.#cache(root)["step"] === "ask")
      ) {
        if (!this.#act(action, root)) return false;
      }
    }
    return false;
  }

  #list(server: string): boolean {
    this.#beforeLoss(server);
    if (!this.#isRelay(server)) return this.#act("list", server);
    return this.#upstreamsOf(server).some(
      (upstream) =>
        this.#isIn(upstream, this.#cache(server)["asked"]) &&
        this.#act("listFrom", server, upstream),
    );
  }

  /** What a server's clients and relays receive later that it has now. */
  #beforeLoss(server: string): void {
    this.#queueAhead(server);
    for (const relay of this.#trace.relays) {
      if (this.#streamOf(relay)["server"] !== server) continue;
      for (const next of this.#appliesAhead(relay)) {
        if (this.#early.has(next) || next.revision > this.#cacheRevision(server)) continue;
        if (this.#applyOne(relay, next) !== undefined) break;
        this.#early.add(next);
      }
    }
  }

  // ---- relays

  #askUpstream(relay: string): boolean {
    if (this.#cache(relay)["step"] === "list") return true;
    const upstreams = this.#upstreamsOf(relay);
    for (const upstream of upstreams) {
      if (this.#cache(relay)["step"] === "ask") break;
      this.#leave(relay);
      if (this.#cache(relay)["step"] === "ask") break;
      // Only an upstream whose event window begins later refuses to be resumed.
      this.#trimTo(upstream, this.#cacheRevision(relay) + 1);
      if (this.#act("openFrom", relay, upstream) && this.#streamOf(relay)["phase"] === "ended")
        this.#leave(relay);
    }
    return upstreams.some((upstream) => this.#act("askFrom", relay, upstream, upstream));
  }

  /** The relay's stream is over. */
  #leave(relay: string): void {
    const { server, phase, queue } = this.#streamOf(relay);
    if (server === "") return;
    const isEnd = phase === "ended" && listOf(queue).length === 0;
    this.#act(isEnd ? "endFrom" : "disconnect", relay);
  }

  #resumeRelay(relay: string, after: number): boolean {
    if (this.#cache(relay)["isReady"] !== true || this.#cacheRevision(relay) !== after)
      return false;
    this.#leave(relay);
    if (this.#cache(relay)["step"] === "ask") return false;
    this.#openUpstream(relay, after);
    return true;
  }

  /** Opens the relay's stream at an upstream that accepts it and has a revision, if there is one. */
  #openUpstream(relay: string, reaching: number): boolean {
    return this.#upstreamsOf(relay).some((upstream) => {
      const before = this.#state;
      this.#backfill(upstream, this.#cacheRevision(relay));
      if (this.#cacheRevision(upstream) >= reaching && this.#act("openFrom", relay, upstream)) {
        if (this.#streamOf(relay)["phase"] !== "ended") return true;
      }
      this.#state = before;
      return false;
    });
  }

  #applyAtRelay(
    relay: string,
    { revision, updates }: Step & { step: "apply" },
  ): string | undefined {
    for (let attempts = 0; attempts < 2; attempts++) {
      const before = this.#state;
      const why = this.#applyFromUpstream(relay, revision, updates);
      if (why === undefined || attempts === 1) return why;
      // Another upstream may have it: the one that was chosen need not be the real one.
      this.#state = before;
      this.#leave(relay);
      if (!this.#openUpstream(relay, revision)) return why;
    }
    return undefined;
  }

  #applyFromUpstream(
    relay: string,
    revision: number,
    updates: (Step & { step: "apply" })["updates"],
  ): string | undefined {
    const own = (): Fields => this.#streamOf(relay);
    if (own()["phase"] === "starting") this.#act("begin", relay);
    for (let head = 0; head < revision; ) {
      if (listOf(own()["queue"]).length === 0) {
        const isOffered = revision <= (own()["offered"] as number);
        if (!isOffered && !this.#act("offer", relay, revision, false)) {
          return `its upstream has ${this.#cacheRevisionOf(own()["server"])}`;
        }
        if (listOf(own()["queue"]).length === 0 && !this.#act("bookmark", relay)) {
          return `its upstream's stream is ${own()["phase"]} at ${own()["offered"]}`;
        }
      }
      const first = listOf(own()["queue"])[0] as Fields;
      head = first["revision"] as number;
      const events = listOf(first["events"]).map((one) => {
        const { key, object } = one as Fields;
        return `${key}@${(object as Fields)["mod"]}`;
      });
      const expected =
        head < revision ? [] : updates.map((update) => `${update.key}@${update.revision}`);
      if (head > revision) return `its upstream has sent ${head}`;
      if (events.join() !== expected.join())
        return `its upstream has sent [${events}], not [${expected}]`;
      this.#act("applyFrom", relay);
    }
    return undefined;
  }

  #isRelay(server: string): boolean {
    return this.#trace.relays.includes(server);
  }

  /** By their names: the relays of a tier follow those of the tier above. */
  #upstreamsOf(relay: string): readonly string[] {
    const tier = Number(/^relay (\d+)/.exec(relay)?.[1]);
    if (tier === 1) return this.#trace.roots;
    return this.#trace.relays.filter((other) => other.startsWith(`relay ${tier - 1}.`));
  }

  #isIn(server: string, revision: Value | undefined): boolean {
    const { floor, revision: last } = this.#cache(server);
    return (floor as number) <= (revision as number) && (revision as number) <= (last as number);
  }

  #streamOf(name: string): Fields {
    return (this.#world["streams"] as QuintMap).get(name) as Fields;
  }

  get #servers(): readonly string[] {
    return [...this.#trace.roots, ...this.#trace.relays];
  }

  #follow({ server, after }: Step & { step: "follow" }): string | undefined {
    this.#settle();
    const before = this.#state;
    const isRelay = this.#isRelay(server);
    const isResumed = isRelay ? this.#resumeRelay(server, after) : this.#resumeWatch(server, after);
    if (isResumed) return undefined;
    this.#state = before;
    if (this.#cache(server)["step"] !== "list" && !this.#ask(server))
      return "it has no cause to list";
    if (!this.#list(server)) return "it can't list";
    if (this.#cacheRevision(server) !== after)
      return `its list is of ${this.#cacheRevision(server)}`;
    this.#settle();
    if (isRelay) {
      this.#openUpstream(server, after);
      return undefined;
    }
    if (!this.#act("openWatch", server)) return "it can't open the watch";
    if (this.#cache(server)["step"] === "confirm") this.#act("confirm", server);
    this.#settle();
    return undefined;
  }

  #resumeWatch(root: string, after: number): boolean {
    const { step, isReady } = this.#cache(root);
    if (isReady !== true || this.#cacheRevision(root) !== after) return false;
    if (step === "confirm" || step === "read") {
      if (!this.#act("breakWatch", root)) return false;
    } else if (step !== "resume" && step !== "open") return false;
    // etcd may refuse it.
    if (!this.#act("openWatch", root)) return false;
    if (this.#cache(root)["step"] === "confirm") this.#act("confirm", root);
    return true;
  }

  #apply(next: Step & { step: "apply" }): string | undefined {
    this.#settle();
    const why = this.#early.delete(next) ? undefined : this.#applyOne(next.server, next);
    this.#settle();
    return why;
  }

  #applyOne(root: string, next: Step & { step: "apply" }): string | undefined {
    const { revision, updates } = next;
    if (revision <= this.#cacheRevision(root)) {
      return updates.length === 0 ? undefined : "it has that already";
    }
    if (this.#isRelay(root)) return this.#applyAtRelay(root, next);
    const cache = this.#cache(root);
    if (listOf(cache["inbox"]).length === 0 && !this.#act("etcdSends", root, revision, false)) {
      return `etcd can't send ${revision} to a watch in the step ${cache["step"]}`;
    }
    const message = listOf(this.#cache(root)["inbox"])[0] as Fields;
    const sent = listOf(message["updates"]).map((one) => {
      const { key, revision: at } = one as Fields;
      return `${key}@${at}`;
    });
    const applied = updates.map((update) => `${update.key}@${update.revision}`);
    if (message["revision"] !== revision) return `etcd has sent ${message["revision"]}`;
    if (sent.join() !== applied.join()) return `etcd has sent [${sent}], not [${applied}]`;
    return this.#act("applyNext", root) ? undefined : "it can't apply that";
  }

  /** What etcd has sent, as later steps show, before it is compacted. */
  #sendAhead(root: string): void {
    const { step } = this.#cache(root);
    if (step !== "confirm" && step !== "read") return;
    for (const { revision } of this.#appliesAhead(root)) {
      const sent = this.#cache(root)["sent"] as number;
      if (revision > sent && revision <= this.#revision)
        this.#act("etcdSends", root, revision, false);
    }
  }

  // ---- the client

  get #stream(): TracedStream | undefined {
    return this.#streams[this.#called - 1];
  }

  /** Takes the steps that are due, as early as their outcome is the recorded one. */
  #settle(): void {
    const stream = this.#stream;
    if (stream === undefined) return;
    if (!this.#isCalled && this.#received === 0) this.#isCalled = this.#call(stream);
    if (!this.#isCalled) return;
    const { phase, required, server } = this.#served;
    const revision = this.#cacheRevisionOf(server);
    const first = stream.responses[0];
    const isLost = phase === "ended" && this.#served["end"] !== "LISTED" && this.#received === 0;
    if (isRead(stream.call) && isLost) {
      // The service reads again, once its cache has been filled again.
      this.#isCalled = !this.#act("disconnect", this.#client);
    } else if ((phase === "state" || phase === "list") && first !== undefined) {
      if (revision === first.revision) this.#act("begin", this.#client);
      else if (this.#revision === first.revision && this.#isLate(String(server), first.revision))
        this.#act("beginFromEtcd", this.#client);
    } else if (phase === "starting" && (revision ?? 0) >= (required as number))
      this.#act("begin", this.#client);
  }

  #call({ call, responses, end }: TracedStream): boolean {
    const [first] = responses;
    const { server, begins } = call;
    const before = this.#state;
    if (begins === "resume") {
      if (end?.reason === "REVISION_TOO_OLD" && first === undefined)
        this.#trimTo(server, end.oldest ?? 0);
      if (first === undefined && !mustRelist.has(end?.reason ?? "")) return false;
      if (first !== undefined) this.#backfill(server, call.after);
      if (!this.#act("resume", this.#client, server)) return false;
      const { phase, end: reason } = this.#served;
      const isExpected = first === undefined ? reason === end?.reason : phase !== "ended";
      if (!isExpected) this.#state = before;
      this.#queued = isExpected && first !== undefined ? 1 : 0;
      return isExpected && (first === undefined || this.#isLast(first));
    }
    if (first === undefined) return false;
    if (begins === "any") {
      if (this.#cacheRevision(server) !== first.revision || first.revision < call.after)
        return false;
      if (this.#act("call", this.#client, server, begins)) return true;
      this.#state = before;
      return false;
    }
    if (begins === "now" ? this.#revision !== first.revision : this.#revision > first.revision)
      return false;
    if (!this.#act("call", this.#client, server, begins)) return false;
    if (begins === "now") {
      this.#queued = 1;
      if (!this.#isLast(first)) this.#state = before;
      return this.#state !== before;
    }
    // The cache must not be beyond the state that the client gets.
    if ((this.#cacheRevisionOf(server) ?? 0) > first.revision) this.#state = before;
    return this.#state !== before;
  }

  /** Whether the next response comes before a server has reached a revision. */
  #isLate(server: string, revision: number): boolean {
    for (const step of this.#trace.steps.slice(this.#at)) {
      if (step.step === "response") return true;
      if (step.step === "follow" && step.server === server && step.after >= revision) return false;
      if (step.step === "apply" && step.server === server && step.revision >= revision)
        return false;
    }
    return false;
  }

  /** Whether the queue ends with a response. */
  #isLast(response: TracedResponse): boolean {
    const last = listOf(this.#served["queue"]).at(-1) as Fields | undefined;
    return last !== undefined && this.#differs([last], response) === undefined;
  }

  /** Queues what the client receives later, before its server can't give it any more. */
  #queueAhead(server: string): void {
    const stream = this.#stream;
    if (stream === undefined || !this.#isCalled || this.#served["server"] !== server) return;
    while (this.#queued < stream.responses.length) {
      const before = this.#state;
      if (this.#queueNext() === undefined) continue;
      this.#state = before;
      return;
    }
  }

  /** Queues the next response. Returns why that can't be. */
  #queueNext(): string | undefined {
    const response = this.#stream?.responses[this.#queued];
    if (response === undefined) return "nothing is left";
    const queued = listOf(this.#served["queue"]).length;
    const { phase } = this.#served;
    if (phase === "initial") {
      if (!response.isInitial) return "the initial state has not ended";
      do this.#act("sendInitial", this.#client);
      while (this.#served["phase"] === "initial");
    } else if (phase === "live") {
      const why = this.#offer(response, queued);
      if (why !== undefined) return why;
    } else if (this.#served["end"] !== "LISTED" || queued === 0)
      return `its stream is ${phase} ${this.#served["end"]}`;
    const isListed = this.#served["end"] === "LISTED";
    const added = listOf(this.#served["queue"]).slice(isListed ? 0 : queued) as Fields[];
    const why = this.#differs(added, response);
    if (why === undefined) this.#queued++;
    return why;
  }

  /**
   * Offers all up to the response's revision at once. What LATEST_STATE has not coalesced is a response for each revision
   * in the model, of which the service sends one.
   */
  #offer(response: TracedResponse, queued: number): string | undefined {
    const before = this.#state;
    const own = (): readonly Fields[] => listOf(this.#served["queue"]).slice(queued) as Fields[];
    const all = response.revision;
    const each = this.#trace.isLatestState ? response.events.map(({ mod }) => mod) : [];
    for (const points of [[all], [...new Set([...each, all])]]) {
      this.#state = before;
      for (const upTo of points) {
        if (upTo <= (this.#served["offered"] as number)) continue;
        if (!this.#act("offer", this.#client, upTo, false)) {
          return `its server has ${this.#cacheRevisionOf(this.#served["server"])}`;
        }
      }
      if (own().at(-1)?.["revision"] !== all && !this.#act("bookmark", this.#client)) {
        this.#act("repeatBookmark", this.#client);
      }
      if (this.#differs(own(), response) === undefined) return undefined;
    }
    return own().length === 0 ? "there is nothing to send" : undefined;
  }

  #response(response: TracedResponse): string | undefined {
    this.#settle();
    if (!this.#isCalled) return "no server can have accepted the call with this outcome";
    while (this.#queued <= this.#received) {
      const why = this.#queueNext();
      if (why !== undefined) return why;
    }
    this.#received++;
    for (;;) {
      const [head] = listOf(this.#served["queue"]) as Fields[];
      if (head === undefined || !this.#act("receive", this.#client))
        return "there is nothing to receive";
      if ((head["revision"] as number) >= response.revision) break;
    }
    const id = (this.#world["clients"] as QuintMap).get(this.#client) as Fields;
    return this.#named(id["id"] as number, response.id);
  }

  #named(id: number, traced: number): string | undefined {
    if (traced === 0) return undefined;
    const known = this.#ids.get(id);
    const other = [...this.#ids].find(([own, name]) => name === traced && own !== id);
    if (known === undefined && other === undefined) this.#ids.set(id, traced);
    else if (known !== traced) return "it names another history";
    return undefined;
  }

  #end({ reason, resume, oldest }: Step & { step: "end" }): string | undefined {
    this.#settle();
    const stream = this.#stream;
    const hasPoint = (stream?.responses.length ?? 0) > 0;
    const { server } = this.#served;
    if (!this.#isCalled) {
      const isRefused = stream?.call.begins === "resume" && mustRelist.has(reason);
      return isRefused ? "no server can have refused the resume point so" : undefined;
    }
    const { streamPoint } = (this.#world["clients"] as QuintMap).get(this.#client) as Fields;
    if (resume !== undefined && resume !== streamPoint) {
      return `the last resume point was ${streamPoint}`;
    }
    if (mustRelist.has(reason) && (hasPoint || stream?.call.begins === "resume")) {
      if (reason === "REVISION_TOO_OLD") this.#trimTo(String(server), oldest ?? 0);
      const { phase, end } = this.#served;
      if (phase !== "ended" || end !== reason) return `its stream is ${phase} ${end}`;
      return this.#act("receiveEnd", this.#client) ? undefined : "it has not received all";
    }
    if (reason === "" && this.#served["end"] === "CONNECTION_LOST") {
      if (this.#act("receiveEnd", this.#client)) return undefined;
    }
    return this.#act("disconnect", this.#client) ? undefined : "it has no stream";
  }

  /** The event window begins at a revision, or as early as it can. */
  #backfill(server: string, floor: number): void {
    const isRelay = this.#isRelay(server);
    // A relay has it from its upstream, which may have it from one in turn.
    const upstream = isRelay ? this.#streamOf(server)["server"] : "";
    if (upstream !== "") this.#backfill(String(upstream), floor);
    const action = isRelay ? "backfillFrom" : "backfill";
    while ((this.#cache(server)["floor"] as number) > floor) if (!this.#act(action, server)) return;
  }

  #trimTo(server: string, floor: number): void {
    while ((this.#cache(server)["floor"] as number) < floor && this.#act("trim", server));
  }

  // ---- how a response differs

  #differs(added: readonly Fields[], response: TracedResponse): string | undefined {
    const revision = added.at(-1)?.["revision"];
    if (revision !== response.revision) return `the model has a response with ${revision}`;
    const events = added.flatMap((one) => listOf(one["events"]) as readonly Fields[]);
    const own = inKeyOrder(events.map(ownEvent))
      .map((event) => this.#textOf(event))
      .join();
    const traced = response.events.map((event) => this.#textOf(event)).join();
    return own === traced ? undefined : `the model has [${own}]`;
  }

  #textOf({ kind, key, mod, create, previous }: TracedEvent): string {
    return `${kind} ${key}@${mod}/${create}${this.#trace.hasPrevious ? ` was ${previous}` : ""}`;
  }

  // ---- what the trace has later

  #nextWritten(): (Step & { step: "written" }) | undefined {
    const next = this.#trace.steps.slice(this.#at).find(({ step }) => step === "written");
    return next as (Step & { step: "written" }) | undefined;
  }

  #nextFollow(server: string): (Step & { step: "follow" }) | undefined {
    for (const step of this.#ahead(server)) if (step.step === "follow") return step;
    return undefined;
  }

  #appliesAhead(server: string): (Step & { step: "apply" })[] {
    const found: (Step & { step: "apply" })[] = [];
    for (const step of this.#ahead(server)) {
      if (step.step !== "apply") break;
      found.push(step);
    }
    return found;
  }

  /** The next steps of a server. */
  *#ahead(server: string) {
    const { steps } = this.#trace;
    for (let i = this.#at; i < steps.length; i++) {
      const step = steps[i];
      if (step?.step === "follow" || step?.step === "apply" || step?.step === "start") {
        if (step.server === server) yield step;
      }
    }
  }

  #lastApplied(server: string): number {
    return this.#cacheRevision(server);
  }

  // ---- the state of the model

  #act(action: string, ...args: Value[]): boolean {
    const next = this.#model.act(this.#state, action, args);
    if (next === undefined) return false;
    this.#state = next;
    this.taken++;
    return true;
  }

  #must(action: string, ...args: Value[]): void {
    if (!this.#act(action, ...args)) throw new Error(`${action} is not enabled.`);
  }

  get #world(): Fields {
    return this.#state["world"] as Fields;
  }

  get #revision(): number {
    const histories = listOf((this.#world["etcd"] as Fields)["histories"]);
    return listOf(histories.at(-1)).length - 1;
  }

  /** The revision of an object; 0: it does not exist. */
  #modOf(key: number): number {
    const histories = listOf((this.#world["etcd"] as Fields)["histories"]);
    const state = listOf(histories.at(-1)).at(-1) as QuintMap;
    return (state.get(key) as Fields)["mod"] as number;
  }

  #cache(server: string): Fields {
    return (this.#world["caches"] as QuintMap).get(server) as Fields;
  }

  #cacheRevision(server: string): number {
    return this.#cache(server)["revision"] as number;
  }

  #cacheRevisionOf(server: Value | undefined): number | undefined {
    return server === undefined || server === "" ? undefined : this.#cacheRevision(String(server));
  }

  get #served(): Fields {
    return (this.#world["streams"] as QuintMap).get(this.#client) as Fields;
  }
}

/** An event of the model. */
function ownEvent(event: Fields): TracedEvent {
  const { mod, create } = event["object"] as Fields;
  const previous = (event["previous"] as Fields)["mod"];
  return {
    ...{ kind: event["kind"] as TracedEvent["kind"], key: event["key"] as number },
    ...{ mod: mod as number, create: create as number, previous: previous as number },
  };
}

function listOf(value: Value | undefined): readonly Value[] {
  return value !== undefined && isList(value) ? value : [];
}

function streamsOf(steps: readonly Step[]): TracedStream[] {
  const streams: {
    call: TracedStream["call"];
    responses: TracedResponse[];
    end: TracedStream["end"];
  }[] = [];
  for (const step of steps) {
    const last = streams.at(-1);
    if (step.step === "call") streams.push({ call: step, responses: [], end: undefined });
    else if (step.step === "response") last?.responses.push(step.response);
    else if (step.step === "end" && last !== undefined) last.end = step;
  }
  return streams;
}
