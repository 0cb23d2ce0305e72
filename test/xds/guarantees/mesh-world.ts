import { expect } from "vitest";
import fc from "../../property.ts";
import { until } from "../../testing/patient-until.ts";
import { kinds, MeshClient } from "./mesh-client.ts";
import type { FollowedType } from "./stored-history.ts";
import type { Entry, StoredMesh } from "./stored-mesh.ts";

/** One step. The numbers of clients are taken modulo their count. */
export type MeshStep =
  | { readonly step: "write"; readonly entries: readonly Entry[]; readonly isLarge: boolean }
  | { readonly step: "cut"; readonly client: number }
  | { readonly step: "pause"; readonly client: number }
  | { readonly step: "resume"; readonly client: number }
  | { readonly step: "refuse"; readonly client: number }
  | {
      readonly step: "toggle";
      readonly client: number;
      readonly type: FollowedType;
      readonly name: string;
    }
  /** Waits until all clients that read have everything. */
  | { readonly step: "settle" };

const name = fc.constantFrom("a", "b", "c");
const isDeleted = fc.boolean();

const entry: fc.Arbitrary<Entry> = fc.oneof(
  fc.record({ type: fc.constantFrom("cds" as const, "lds" as const), name, isDeleted }),
  fc.record({ type: fc.constant("rds" as const), name, isDeleted, to: name }),
  fc.record({
    ...{ type: fc.constant("eds" as const), name },
    ...{ instance: fc.constantFrom("1", "2"), port: fc.constantFrom(0, 80, 81) },
  }),
);

const client = fc.nat(99);

export const meshStep: fc.Arbitrary<MeshStep> = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      step: fc.constant("write" as const),
      entries: fc.uniqueArray(entry, {
        ...{ minLength: 1, maxLength: 4 },
        selector: (each) => `${each.type} ${each.name}`,
      }),
      isLarge: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("cut" as const), client }) },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("pause" as const), client }) },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("resume" as const), client }) },
  { weight: 1, arbitrary: fc.record({ step: fc.constant("refuse" as const), client }) },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ step: fc.constant("toggle" as const), client, name },
      type: fc.constantFrom("cds" as const, "eds" as const, "lds" as const, "rds" as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ step: fc.constant("settle" as const) }) },
);

/** Clients of each kind at each server, and one writer. */
export class MeshWorld {
  readonly #mesh: StoredMesh;
  readonly #clients: readonly MeshClient[];
  readonly #paused = new Set<MeshClient>();

  constructor(mesh: StoredMesh, ports: Readonly<Record<string, number>>) {
    this.#mesh = mesh;
    this.#clients = Object.entries(ports).flatMap(([server, port]) =>
      Object.keys(kinds).map((kind) => new MeshClient(server, kind, port, mesh.history)),
    );
  }

  /** Runs all steps. Fails if a client has not everything at the end, or a guarantee is broken. */
  async live(steps: readonly MeshStep[]): Promise<void> {
    for (const client of this.#clients) client.open();
    for (const step of steps) await this.#take(step);
    for (const client of this.#clients) this.#resume(client);
    await this.#settle();
  }

  close(): void {
    for (const client of this.#clients) client.close();
  }

  async #take(step: MeshStep): Promise<void> {
    if (step.step === "write") return this.#mesh.write(step.entries, step.isLarge);
    if (step.step === "settle") return this.#settle();
    const client = this.#clients[step.client % this.#clients.length] as MeshClient;
    if (step.step === "refuse") client.refuseNext();
    else if (step.step === "resume") this.#resume(client);
    else if (step.step === "pause") {
      this.#paused.add(client);
      client.pause();
    } else if (step.step === "cut") {
      this.#paused.delete(client);
      client.cut();
    } else {
      this.#resume(client);
      await this.#settle();
      client.toggle(step.type, step.name);
    }
  }

  #resume(client: MeshClient): void {
    this.#paused.delete(client);
    client.resume();
  }

  async #settle(): Promise<void> {
    const reading = this.#clients.filter((client) => !this.#paused.has(client));
    const missing = (): string[] =>
      reading.flatMap(({ name, view }) => view.missing.map((what) => `${name}: ${what}`));
    await until(
      () => missing().join("\n"),
      () => this.broken.length > 0 || missing().length === 0,
      { timeoutMs: 60_000 },
    );
    expect(this.broken).toEqual([]);
    for (const { name, view } of reading) expect(view.wrongVersions, name).toEqual([]);
  }

  /** What breaks a guarantee. */
  get broken(): readonly string[] {
    return this.#clients.flatMap(({ name, view }) => view.broken.map((what) => `${name}: ${what}`));
  }
}
