import { setTimeout as delay } from "node:timers/promises";
import { type BareCall, BareStatus, errorInfoIn } from "../foreign/bare-grpc.ts";
import type { Accepted } from "../foreign/decompressed.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import type { Endpoint } from "./endpoint.ts";
import type { Seeded } from "./seeded.ts";
import { type CreditKind, SubscribedWatch } from "./subscribed-watch.ts";
import type { RecordedTime, StreamEnd } from "./watch-record.ts";
import { Connection, type Wish } from "./wire.ts";

/** How long the client waits between two requests, in milliseconds at most. */
const pauseMs = 100;

/** After about so many responses it leaves its replica for another. */
const hopsAfter = 60;

export interface SubscriberOptions extends RecordedTime {
  readonly name: string;
  readonly watches: readonly (readonly [name: string, wish: Wish, credit: CreditKind])[];
  readonly endpoints: readonly Endpoint[];
  readonly random: Seeded;
  /** The encoding of responses. Default: they are not compressed. */
  readonly accepts?: Accepted | undefined;
  /** All watches have delivered everything up to the revision, these first. */
  readonly onProgress?: (revision: number, watches: readonly SubscribedWatch[]) => void;
}

/** A request for the progress of all watches that were open then. */
interface ProgressRequest {
  readonly tag: number;
  readonly watches: readonly { readonly watch: SubscribedWatch; readonly opened: number }[];
  /** What was acknowledged, and in which of etcd's histories. */
  readonly notBefore: number;
  readonly era: number;
}

interface Stream {
  readonly endpoint: Endpoint;
  readonly call: BareCall;
  readonly requests: ProgressRequest[];
  isOver: boolean;
}

/**
 * A client of Subscribe: has all its watches on one stream, grants them credit, removes and resumes them, and asks how far
 * they are. Each watch records what it receives as a stream of its own would. Progress is recorded as a resume point of
 * each of them, so the checkers of the guarantees find what it has left out, and what comes behind it although it is
 * before.
 */
export class RecordedSubscriber {
  readonly name: string;
  readonly watches: readonly SubscribedWatch[];
  /** What contradicts the contract of the stream, so far. */
  readonly wrong: string[] = [];
  readonly #options: SubscriberOptions;
  #connection: Connection | undefined;
  #running: Promise<void> | undefined;
  #isStopped = false;
  #isHurried = false;
  #isAway = false;
  #ids = 0;
  #tags = 0;
  /** The last progress of all watches together, and how many of them it was about. */
  #progress = { revision: 0, watches: 0 };
  #answers = 0;

  constructor(options: SubscriberOptions) {
    const { name, watches, random } = options;
    this.#options = options;
    this.name = name;
    this.watches = watches.map(
      ([own, wish, credit]) =>
        new SubscribedWatch(`${name}: ${own}`, wish, options, { credit, random: random.fork() }),
    );
  }

  /** Number of requests for the progress of all watches that were answered. */
  get answers(): number {
    return this.#answers;
  }

  start(): void {
    this.#running = this.#run();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    this.vanish();
    await this.#running;
  }

  /** While hurried it removes no watch, and grants all that is needed, so that it comes to where the others are. */
  hurry(isHurried: boolean): void {
    this.#isHurried = isHurried;
  }

  /** Drops its connection without a word. */
  vanish(): void {
    this.#connection?.close();
  }

  /** Ends its stream, and opens another only after `comeBack`. */
  leave(): void {
    this.#isAway = true;
    this.vanish();
  }

  /** Idempotent. */
  comeBack(): void {
    this.#isAway = false;
  }

  /** The watches that do not have everything up to a revision of this history, and progress that has not come. */
  behind(revision: number, era: number, historyId?: string): string[] {
    const watches = this.watches
      .filter((watch) => !watch.isAt(revision, era, historyId))
      .map((watch) => {
        const last = JSON.stringify(watch.ends.at(-1) ?? null);
        return `${watch.name} is at ${watch.level}, not at ${revision}; its last stream ended with ${last}`;
      });
    const { revision: reached, watches: count } = this.#progress;
    if (watches.length > 0 || (reached >= revision && count === this.watches.length))
      return watches;
    return [`${this.name} has progress of ${count} watches at ${reached}, not at ${revision}`];
  }

  async #run(): Promise<void> {
    const { random } = this.#options;
    while (!this.#isStopped) {
      if (!this.#isAway) await this.#converse();
      await delay(random.between(5, 60));
    }
  }

  /** Has one stream to its end. */
  async #converse(): Promise<void> {
    const { random, endpoints, accepts } = this.#options;
    const endpoint = random.pick(endpoints);
    const connection = new Connection(endpoint.relay.url, undefined, accepts);
    this.#connection = connection;
    const call = connection.subscribe();
    const stream: Stream = { endpoint, call, requests: [], isOver: false };
    const enough = random.between(1, 2 * hopsAfter);
    const driving = this.#drive(stream);
    let end: Omit<StreamEnd, "resumePoint"> | undefined;
    try {
      let responses = 0;
      let isLeft = false;
      for await (const bytes of call) {
        this.#take(stream, new Message(bytes));
        isLeft = ++responses >= enough && !this.#isHurried && endpoints.length > 1;
        if (isLeft) break;
      }
      if (!isLeft) throw new BareStatus(0, "The stream ended as if it had no watch.");
    } catch (error) {
      end = endOf(endpoint, error);
    } finally {
      stream.isOver = true;
      connection.close();
    }
    for (const watch of this.watches)
      if (watch.isOpen) watch.close(this.#isStopped ? undefined : end);
    await driving;
  }

  /** Sends requests until the stream is over. */
  async #drive(stream: Stream): Promise<void> {
    const { random } = this.#options;
    for (const watch of this.watches) if (random.chance(0.8)) this.#add(stream, watch);
    while (!stream.isOver) {
      for (const watch of this.watches) this.#request(stream, watch);
      if (random.chance(this.#isHurried ? 0.5 : 0.3)) this.#askProgress(stream);
      await delay(random.between(1, pauseMs));
    }
  }

  /** What the client wants of one watch now. */
  #request({ call, ...stream }: Stream, watch: SubscribedWatch): void {
    const { random } = this.#options;
    if (!watch.isOpen) {
      if (this.#isHurried || random.chance(0.3)) this.#add({ call, ...stream }, watch);
    } else if (watch.isRemoving) {
      // Its end is under way.
    } else if (random.chance(watch.isParked ? 0.4 : this.#isHurried ? 0.1 : 0.02)) {
      // Which of its bookmarks is an answer, and takes no credit, is not known: it may be parked although it seems not to be.
      const request = watch.grant(this.#isHurried);
      if (request !== undefined) call.send(request);
    } else if (!this.#isHurried && random.chance(0.02)) {
      watch.isRemoving = true;
      call.send(encode({ 2: encode({ 1: watch.id }) }));
    } else if (random.chance(0.05)) {
      watch.progressRequests++;
      call.send(encode({ 4: encode({ 1: watch.id }) }));
    }
  }

  #add({ call }: Stream, watch: SubscribedWatch): void {
    call.send(watch.open(++this.#ids));
  }

  #askProgress({ call, requests }: Stream): void {
    const { acknowledged, newestEra } = this.#options;
    const watches = this.watches
      .filter(({ isOpen, isRemoving }) => isOpen && !isRemoving)
      .map((watch) => ({ watch, opened: watch.opened }));
    if (watches.length === 0) return;
    const tag = ++this.#tags;
    requests.push({ tag, watches, notBefore: acknowledged(), era: newestEra() });
    call.send(encode({ 4: encode({ 2: tag }) }));
  }

  #take(stream: Stream, message: Message): void {
    const id = message.number(1);
    const watch = this.watches.find((one) => one.id === id && one.isOpen);
    const [response, ended, refused, progress] = [2, 3, 4, 5].map((field) =>
      message.message(field),
    );
    if (refused !== undefined) this.#refused(id, statusIn(refused));
    else if (progress !== undefined)
      this.#progressed(stream, progress.number(1), progress.number(2));
    else if (watch === undefined) this.#isWrong(`Subscribe: ${id} is no watch, and got something`);
    else if (ended !== undefined) this.#ended(stream, watch, statusIn(ended));
    else if (response !== undefined) {
      for (const what of watch.take(message.bytes(2), response))
        this.#isWrong(`${watch.name}: ${what}`);
    }
  }

  #ended({ endpoint }: Stream, watch: SubscribedWatch, status: Status): void {
    const { isRemoving } = watch;
    if (status.code === 0 && !isRemoving)
      this.#isWrong(`Honest: ${watch.name} ended as if removed`);
    const end = { endpoint: endpoint.name, isCutOff: false, ...status };
    watch.close(status.code === 0 ? undefined : end);
  }

  /**
   * A request for a watch that had ended, or for progress while etcd can't be asked. Which request for all that was is not
   * said; it stays among those that the next progress answers.
   */
  #refused(id: number, { reason, message }: Status): void {
    const isOpen = this.watches.some((watch) => watch.id === id && watch.isOpen);
    if (reason === "UNKNOWN_WATCH" && !isOpen) return;
    if (reason === "UPSTREAM_UNAVAILABLE" || reason === "NOT_READY") return;
    this.#isWrong(`Subscribe: a request for ${id} was refused as ${reason}, "${message}"`);
  }

  #progressed({ requests }: Stream, revision: number, tag: number): void {
    const { newestEra, onProgress } = this.#options;
    const index = requests.findIndex((request) => request.tag === tag);
    if (index < 0) this.#isWrong(`Cut: the progress ${tag} was not requested`);
    const answered = requests.splice(0, index + 1);
    const open = new Set<SubscribedWatch>();
    for (const { watches, notBefore, era } of answered) {
      for (const { watch, opened } of watches) {
        if (watch.isOpen && watch.opened === opened) open.add(watch);
      }
      if (revision < notBefore && era === newestEra()) {
        this.#isWrong(
          `Cut: the progress ${tag} is ${revision}, and ${notBefore} was acknowledged before`,
        );
      }
    }
    for (const watch of open) {
      for (const what of watch.progressed(revision)) this.#isWrong(`${watch.name}: ${what}`);
    }
    this.#progress = { revision, watches: open.size };
    this.#answers++;
    onProgress?.(revision, [...open]);
  }

  #isWrong(what: string): void {
    this.wrong.push(`${this.name}: ${what}`);
  }
}

type Status = Pick<StreamEnd, "code" | "reason" | "message" | "metadata">;

/** Of a google.rpc.Status. */
function statusIn(status: Message): Status {
  const info = errorInfoIn(status);
  const { code, reason, message, metadata } = new BareStatus(
    status.number(1),
    status.text(2),
    info,
  );
  return { code, reason, message, metadata };
}

function endOf(endpoint: Endpoint, error: unknown): Omit<StreamEnd, "resumePoint"> {
  if (!(error instanceof Error) || !("code" in error)) throw error;
  const { code, reason, message, metadata, isCutOff } =
    error instanceof BareStatus ? error : new BareStatus(-1, error.message, undefined, true);
  return { endpoint: endpoint.name, code, reason, message, metadata, isCutOff };
}
