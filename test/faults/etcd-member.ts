import { join } from "node:path";
import { EtcdProcess } from "../etcd/etcd-process.ts";
import { patienceMs } from "./patience.ts";
import type { Relay } from "./relay.ts";

export interface MemberPlace {
  readonly name: string;
  readonly folder: string;
  readonly clientPort: number;
  readonly peerPort: number;
  /** Through which the other members reach it. */
  readonly peers: Relay;
}

/** How long a call of the gateway may take, in milliseconds. */
const callTimeoutMs = 5_000;

/** One member of a cluster for fault tests. */
export class EtcdMember {
  readonly name: string;
  readonly clientPort: number;
  readonly peers: Relay;
  /** Decimal, as the gateway returns it. */
  id = "";
  isCutOff = false;
  readonly #place: MemberPlace;
  #process: EtcdProcess | undefined;
  #rootPassword: string | undefined;
  #token: Promise<string> | undefined;
  #isRunning = false;
  #isPaused = false;

  constructor(place: MemberPlace) {
    this.#place = place;
    this.name = place.name;
    this.clientPort = place.clientPort;
    this.peers = place.peers;
  }

  /** Once all members of the cluster are known. */
  configure(bin: string, members: readonly EtcdMember[], args: readonly string[]): void {
    const { folder, peerPort } = this.#place;
    // Of one member, the leader is elected at once. Several need time for one another.
    const election = members.length === 1 ? ["30", "300"] : ["50", "500"];
    this.#process = new EtcdProcess(bin, folder, [
      `--name=${this.name}`,
      `--data-dir=${this.dataFolder}`,
      `--listen-client-urls=${this.url}`,
      `--advertise-client-urls=${this.url}`,
      `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
      `--initial-advertise-peer-urls=${this.peers.url}`,
      `--initial-cluster=${initialCluster(members)}`,
      "--unsafe-no-fsync",
      "--log-level=warn",
      `--heartbeat-interval=${election[0]}`,
      `--election-timeout=${election[1]}`,
      ...args,
    ]);
  }

  /** Turns on authentication. */
  authenticateWith(rootPassword: string): void {
    this.#rootPassword = rootPassword;
  }

  /** Where clients reach it. */
  get url(): string {
    return `http://127.0.0.1:${this.clientPort}`;
  }

  get dataFolder(): string {
    return join(this.#place.folder, "data");
  }

  /** Undefined while it does not run. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** As it names itself to the other members. */
  get dialerId(): string {
    return BigInt(this.id).toString(16);
  }

  get isHealthy(): boolean {
    return this.#isRunning && !this.#isPaused && !this.isCutOff;
  }

  /** No effect if it runs. */
  async start(): Promise<void> {
    if (this.#isRunning) return;
    await this.#known.start();
    this.#isRunning = true;
  }

  async kill(): Promise<void> {
    this.#isRunning = false;
    this.#isPaused = false;
    // It forgets all tokens.
    this.#token = undefined;
    await this.#known.kill();
  }

  async pause(): Promise<void> {
    this.#isPaused = true;
    await this.#known.pause();
  }

  resume(): void {
    this.#isPaused = false;
    this.#known.resume();
  }

  async stop(): Promise<void> {
    await this.kill();
    await this.peers.close();
  }

  /** Calls its JSON gateway, as root. Bytes are in base64. */
  async call(path: string, body: object): Promise<Record<string, unknown>> {
    const token = await this.token();
    const response = await fetch(`${this.url}/v3/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
      headers: token === undefined ? {} : { authorization: token },
      signal: AbortSignal.timeout(callTimeoutMs),
    });
    const text = await response.text();
    if (!response.ok) {
      if (text.includes("auth")) this.#token = undefined;
      throw new Error(`etcd refuses ${path}: ${text}`);
    }
    return JSON.parse(text) as Record<string, unknown>;
  }

  /** The token of root's calls, if authentication is on. */
  async token(): Promise<string | undefined> {
    if (this.#rootPassword === undefined) return undefined;
    this.#token ??= this.authenticate(callTimeoutMs);
    try {
      return await this.#token;
    } catch (error) {
      this.#token = undefined;
      throw error;
    }
  }

  /** A token that no other client has. A password takes long to check on a busy machine. */
  async authenticate(timeoutMs: number = patienceMs): Promise<string> {
    const response = await fetch(`${this.url}/v3/auth/authenticate`, {
      method: "POST",
      body: JSON.stringify({ name: "root", password: this.#rootPassword }),
      signal: AbortSignal.timeout(timeoutMs),
    });
    const result = (await response.json()) as { readonly token?: string };
    if (result.token === undefined) throw new Error(`etcd gives no token: ${response.status}`);
    return result.token;
  }

  /** Its own status; leader "0" means no leader. */
  async status(): Promise<{ readonly memberId: string; readonly leader: string }> {
    // The gateway omits fields that are 0.
    const { header, leader = "0" } = await this.call("maintenance/status", {});
    const { member_id } = header as { readonly member_id: string };
    return { memberId: member_id, leader: String(leader) };
  }

  get #known(): EtcdProcess {
    if (this.#process === undefined) throw new Error("This member has not been configured.");
    return this.#process;
  }
}

/** As etcd and its tool take it. */
export function initialCluster(members: readonly EtcdMember[]): string {
  return members.map(({ name, peers }) => `${name}=${peers.url}`).join(",");
}
