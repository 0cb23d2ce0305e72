import { type AddressInfo, createServer, type Socket } from "node:net";
import { type Logger, pino } from "pino";
import { type Clock, systemClock } from "../base/clock.ts";
import { invalidRequest } from "../base/errors.ts";
import { Cacher } from "../cacher/cacher.ts";
import type { ConnectOptions } from "../client/calls/options.ts";
import { type Client, connect } from "../client/connect.ts";
import { AttributeReader } from "../codec/attribute-reader.ts";
import type { Codec } from "../codec/codec.ts";
import { type RunningServer, startServer } from "../server/server.ts";
import { Fault } from "./fault.ts";
import { FaultyStore } from "./faulty-store.ts";
import { someTurns, type TestClock } from "./test-clock.ts";
import { TestEtcd } from "./test-etcd.ts";
import { TestResource } from "./test-resource.ts";
import { TestStore } from "./test-store.ts";
import { type UntilOptions, until } from "./until.ts";

/** Options of `startTestService`. */
export interface TestServiceOptions {
  /** The resources: their names, or with how their values are read. */
  readonly resources: readonly (string | TestResourceOptions)[];
  /**
   * The clock of the service, of the leases of its store, and of its clients. Default: the system time, with timers that do not
   * keep the process alive.
   */
  readonly clock?: TestClock | undefined;
  /**
   * An etcd in place of the embedded store, such as "http://127.0.0.1:2379". Each service has keys of its own there, which
   * `close` deletes. The service then has the system time, and only its clients have `clock`; faults of the store are refused.
   */
  readonly etcd?: string | undefined;
  /** Default: nothing is logged. */
  readonly logger?: Logger | undefined;
}

/** A resource of a test service. */
export interface TestResourceOptions {
  readonly name: string;
  /** Reads labels and fields, for selectors. Default: objects have no attributes. */
  readonly codec?: Codec | undefined;
  /** The fields that objects are indexed by. `codec` has to declare them. Default: none. */
  readonly indexes?: readonly string[] | undefined;
}

/** Rounds without any activity after which a service is settled. */
const quietRounds = 3;

const loopback = "127.0.0.1";

/**
 * Streams end only when a test asks for it, not at their maximum age. And the clock of a test may pass the time limit of a
 * ping before its client has had a turn.
 */
const limits = { maxStreamAgeMs: 0, keepaliveTimeMs: 24 * 3_600_000 };

/**
 * Starts a watch-fanout service in this process, on a free port of 127.0.0.1, with an embedded store:
 *
 *     await using service = await startTestService({ resources: ["pods", "services"] });
 *     const pods = service.client.resource("pods", jsonValues<Pod>());
 *
 * Rejects with INVALID_REQUEST if a name is empty or given twice, and with an Error if the `etcd` can't be reached.
 */
export async function startTestService(options: TestServiceOptions): Promise<TestService> {
  const service = new TestService(options);
  try {
    await service.start();
  } catch (error) {
    await service.close().catch(() => {});
    throw error;
  }
  return service;
}

/**
 * A service for tests, which fails when a test asks for it. It is the real one: its store, its cache and its server, and
 * clients connect to it by TCP. The faults are in the store, at the calls, and at the connections.
 *
 * After a fault clients wait for their backoff, by their clock: with a TestClock, advance it.
 */
export class TestService {
  readonly #clock: Clock;
  readonly #clientClock: Clock;
  readonly #logger: Logger;
  readonly #store: TestStore | TestEtcd;
  readonly #resources: ReadonlyMap<string, TestResource>;
  readonly #listener = createServer({ noDelay: true }, (socket) => this.#accept(socket));
  readonly #sockets = new Set<Socket>();
  readonly #clients: Client[] = [];
  #client: Client | undefined;
  #port = 0;
  /** Undefined while it is not serving: connections wait. */
  #server: RunningServer | undefined;
  #outage: Fault | undefined;
  #closed: Promise<void> | undefined;

  /** Use `startTestService`. */
  constructor(options: TestServiceOptions) {
    const resources = options.resources.map((given) =>
      typeof given === "string" ? { name: given } : given,
    );
    const names = resources.map(({ name }) => name);
    checkNames(names);
    const { etcd, logger = pino({ level: "silent" }), clock = systemClock } = options;
    this.#logger = logger;
    this.#clientClock = clock;
    this.#clock = etcd === undefined ? clock : systemClock;
    this.#store = etcd === undefined ? new TestStore(clock) : new TestEtcd(etcd, names, logger);
    this.#resources = new Map(
      resources.map((each) => [each.name, new TestResource(each.name, () => this.#cacherOf(each))]),
    );
  }

  /** Where it listens, as HOST:PORT: for programs under test that connect themselves. */
  get address(): string {
    return `${loopback}:${this.#port}`;
  }

  /** A client of the service, which `close` closes. */
  get client(): Client {
    this.#client ??= this.connect();
    return this.#client;
  }

  /** Connects another client, with connections of its own. `close` closes it. */
  connect(options: Omit<ConnectOptions, "address"> = {}): Client {
    const client = connect({ address: this.address, clock: this.#clientClock, ...options });
    this.#clients.push(client);
    return client;
  }

  /** For `startTestService`. */
  async start(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#listener.once("error", reject).listen(0, loopback, resolve);
    });
    this.#listener.unref();
    this.#port = (this.#listener.address() as AddressInfo).port;
    await this.#serve();
  }

  /**
   * Resolves to the store's revision once nothing happens any more: all watches have been sent everything, its clients have
   * received that, no call is in progress, and none has come for some turns of the event loop. So a controller of this
   * process has done its work, unless that waits for its clock or for something outside. What a fault holds is not waited for.
   *
   * Rejects with an Error that says what is still in progress when the time is over.
   */
  async settled(options: UntilOptions = {}): Promise<number> {
    let revision = 0;
    let quiet = 0;
    const pending = (): string | undefined => {
      const all = [...this.#resources.values()].map((resource) => resource.pending(revision));
      return all.find((what) => what !== undefined);
    };
    const look = async (): Promise<number | false> => {
      const before = this.#activity;
      revision = await this.#reached();
      // Their responses come behind all that was sent on the same connections. A client may have been closed.
      const asked = this.#outage === undefined ? this.#clients : [];
      await Promise.allSettled(asked.map((client) => client.isServing()));
      await someTurns();
      const isQuiet = pending() === undefined && before === this.#activity;
      quiet = isQuiet ? quiet + 1 : 0;
      return quiet >= quietRounds && revision;
    };
    const busy = "calls keep coming, or clients have not received everything";
    const what = (): string => `the service to settle: ${pending() ?? busy}`;
    return await until(what, look, options);
  }

  /** Cuts all connections. Resolves when clients in this process have noticed: a write that begins then is not lost. */
  async cutConnections(): Promise<void> {
    this.#cut();
    await someTurns();
  }

  /** Cuts all connections, and refuses new ones until the fault ends. Resolves as `cutConnections` does. */
  async disconnect(): Promise<Fault> {
    this.#outage?.end();
    const outage = new Fault(() => {
      this.#outage = undefined;
    });
    this.#outage = outage;
    await this.cutConnections();
    return outage;
  }

  /**
   * Holds the events of all watches of a resource until the fault ends, so that informers lag behind what was written, while
   * reads and writes continue. For code that takes its own write for done when its informer does not have it yet.
   */
  holdWatches(resource: string): Fault {
    return this.#resource(resource).holdWatches();
  }

  /** Holds all reads and writes of a resource until the fault ends, before they have an effect. */
  holdCalls(resource: string): Fault {
    return this.#resource(resource).holdCalls();
  }

  /**
   * Lets another writer be faster, once: just before the next write of the key the object is written with `value`; by default
   * with its own, or, if it does not exist, with that of the next write. So that one fails with REVISION_CONFLICT if it
   * expects a revision, or that there is no object.
   */
  conflict(resource: string, key: string, value?: Uint8Array): Fault {
    return this.#resource(resource).conflict(key, value);
  }

  /** Makes the next write of the key fail with OUTCOME_UNKNOWN, once: `isApplied` says whether it is applied nevertheless. */
  loseResponse(resource: string, key: string, isApplied: boolean): Fault {
    return this.#resource(resource).loseResponse(key, isApplied);
  }

  /**
   * Makes the store unavailable until the fault ends: writes, leases, and reads that need it, fail with UPSTREAM_UNAVAILABLE. What is
   * cached is still served, to reads of ANY.
   */
  loseStore(): Fault {
    return this.#embeddedStore("be unavailable").lose();
  }

  /**
   * Forgets the past: compacts the store above all that clients have seen, and restarts the service. Watches that resume fail
   * with REVISION_TOO_OLD, so informers list again.
   */
  async forgetPast(): Promise<void> {
    const store = this.#embeddedStore("be compacted");
    await this.#restart(store, () => store.forgetPast());
  }

  /**
   * Restores the store: it goes back to its content at `revision`, in a new history, and the service restarts. Watches that
   * resume fail with HISTORY_CHANGED, and so do writes that name the old history. Leases are lost.
   *
   * Rejects with INVALID_REQUEST for a revision below 1, HISTORY_CHANGED for one above the current, and REVISION_TOO_OLD after
   * `forgetPast`.
   */
  async restore(revision: number): Promise<void> {
    const store = this.#embeddedStore("be restored");
    await this.#restart(store, () => store.restore(revision));
  }

  /** Closes the service and its clients. Idempotent. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** The same as `close`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    for (const client of this.#clients) client.close();
    this.#listener.close();
    await this.#stop();
    await this.#store.close();
  }

  async #restart(store: TestStore, change: () => Promise<void>): Promise<void> {
    if (this.#server === undefined || store.isLost) {
      const message = "The service can't restart now: await its last restart, and end `loseStore`.";
      throw invalidRequest("service", message);
    }
    await this.#stop();
    try {
      await change();
    } finally {
      for (const resource of this.#resources.values()) resource.replace();
      await this.#serve();
    }
  }

  async #serve(): Promise<void> {
    await Promise.all([...this.#resources.values()].map((resource) => resource.start()));
    this.#server = await startServer({
      resources: this.#resources,
      store: this.#sharedStore(),
      listen: { acceptedAt: { host: loopback, port: this.#port } },
      ...{ clock: this.#clock, logger: this.#logger, limits },
    });
    for (const socket of this.#sockets) this.#server.accept(socket);
  }

  async #stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    await this.cutConnections();
    await server?.drain(0);
    for (const resource of this.#resources.values()) await resource.stop();
  }

  #accept(socket: Socket): void {
    socket.unref();
    socket.on("error", () => {});
    if (this.#outage !== undefined || this.#closed !== undefined) {
      this.#outage?.happens();
      socket.destroy();
      return;
    }
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    this.#server?.accept(socket);
  }

  #cut(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#sockets.clear();
  }

  #cacherOf({ name, codec, indexes }: TestResourceOptions): Cacher {
    const [clock, logger] = [this.#clock, this.#logger];
    const attributes = codec && new AttributeReader(codec, clock, logger);
    const storage = this.#store.open(name);
    return new Cacher({ ...{ name, storage, clock, logger }, attributes, indexes });
  }

  #sharedStore(): FaultyStore {
    const store = this.#store;
    const check = (): void => {
      if (store instanceof TestStore) store.check();
    };
    return new FaultyStore(store.shared, check, this.#resources);
  }

  /** Waits until all caches have the store's revision, and the watches are offered it. */
  async #reached(): Promise<number> {
    const reached = [...this.#resources.values()].map((each) => each.reachCurrentRevision());
    const revisions = await Promise.all(reached);
    return Math.min(...revisions.map((revision) => revision ?? 0));
  }

  get #activity(): number {
    return [...this.#resources.values()].reduce((sum, { activity }) => sum + activity, 0);
  }

  #resource(name: string): TestResource {
    const resource = this.#resources.get(name);
    if (resource !== undefined) return resource;
    const known = [...this.#resources.keys()].join(", ");
    throw invalidRequest(
      "resource",
      `There is no resource ${JSON.stringify(name)}: name one of ${known}.`,
    );
  }

  #embeddedStore(what: string): TestStore {
    if (this.#store instanceof TestStore) return this.#store;
    throw invalidRequest("etcd", `A test can't ask an etcd to ${what}: use the embedded store.`);
  }
}

function checkNames(names: readonly string[]): void {
  if (names.length > 0 && new Set(names).size === names.length && !names.includes("")) return;
  const given = names.map((name) => JSON.stringify(name)).join(", ");
  throw invalidRequest(
    "resources",
    `The names of the resources are ${given}: give at least one, each once, and none empty.`,
  );
}
