import type { Command } from "commander";
import { pause } from "../../base/clock.ts";
import type { Client } from "../../client/client.ts";
import { persist } from "../../client/coordination/leased-keys.ts";
import { type CommandIo, exitCodes, tableOptions } from "../output/command-io.ts";
import { durationOf, printableText } from "../output/printable.ts";
import { Table } from "../output/table.ts";
import {
  addClientOptions,
  type ClientOptions,
  leaseId,
  requireFormat,
  timeToLive,
} from "./client-options.ts";
import { runSession, untilInterrupted } from "./client-session.ts";
import { line } from "./object-output.ts";

/** Adds `lease grant`, `keep-alive`, `revoke` and `ttl`. */
export function addLeaseCommands(program: Command, io: CommandIo): void {
  const lease = program
    .command("lease")
    .description("Grant and end leases, whose objects are deleted with them (put --lease).");
  addGrant(lease, io);
  addKeepAlive(lease, io);
  addRevoke(lease, io);
  addTtl(lease, io);
}

function addGrant(lease: Command, io: CommandIo): void {
  const command = lease
    .command("grant")
    .description("Grant a lease, and print its id; -o value prints nothing else.")
    .argument("<ttl>", "how long it lasts unless it is kept alive, such as 60s", timeToLive);
  addClientOptions(command).action(async (ttlMs: number, options: ClientOptions) => {
    requireFormat(command, options, ["table", "json", "value"]);
    await runSession(io, options, async ({ client, output }) => {
      const { id, ttlMs: grantedMs } = await client.leases.grant(ttlMs);
      const text = options.output === "value" ? `${id}\n` : renewals(io, options)(id, grantedMs);
      await output.write(text);
    });
  });
}

/** Formats a lease and how long it lasts, as the messages of the service do in JSON. */
function renewals(io: CommandIo, { output }: ClientOptions): (id: bigint, ms: number) => string {
  const table = new Table(["LEASE", "TTL"], tableOptions(io));
  return (id, ms) =>
    output === "json"
      ? line({ lease: String(id), ttl: wireSeconds(ms) })
      : table.format([[String(id), durationOf(ms / 1_000)]]);
}

function wireSeconds(ms: number): string {
  return `${ms / 1_000}s`;
}

interface KeepAliveOptions extends ClientOptions {
  readonly once?: true;
}

function addKeepAlive(lease: Command, io: CommandIo): void {
  const command = lease
    .command("keep-alive")
    .description("Renew a lease until it ends or the command is interrupted.")
    .argument("<lease>", "its id", leaseId)
    .option("--once", "renew it once");
  addClientOptions(command).action(async (id: bigint, options: KeepAliveOptions) => {
    requireFormat(command, options, ["table", "json"]);
    await runSession(io, options, (session) =>
      untilInterrupted(session, async (signal, interrupted) => {
        const { client, output } = session;
        const format = renewals(io, options);
        const renew = (): Promise<number> => renewOnce(client, id, options.timeout);
        try {
          let ttlMs = await renew();
          await output.write(format(id, ttlMs));
          while (options.once !== true) {
            await pause(client.leases.site.clock, ttlMs / 3, signal);
            // A service that can't be reached is no reason to let the lease end.
            ttlMs = await persist(renew, client.leases.site, signal);
            await output.write(format(id, ttlMs));
          }
        } catch (error) {
          if (!interrupted.aborted) throw error;
        }
      }),
    );
  });
}

/** Resolves to how long the lease lasts from now, in milliseconds. Rejects with LEASE_NOT_FOUND. */
async function renewOnce(client: Client, id: bigint, timeoutMs: number): Promise<number> {
  const { outcomes } = await client.leases.renew([id], timeoutMs);
  const [outcome] = outcomes;
  if (typeof outcome === "number") return outcome;
  throw outcome;
}

function addRevoke(lease: Command, io: CommandIo): void {
  const command = lease
    .command("revoke")
    .description("End a lease, which deletes its objects.")
    .argument("<lease>", "its id", leaseId);
  addClientOptions(command).action(async (id: bigint, options: ClientOptions) => {
    await runSession(io, options, async ({ client, output, say }) => {
      if (await client.leases.revoke(id)) return output.write(`Revoked ${id}.\n`);
      say(`There is no lease ${id}.`);
      io.exitWith(exitCodes.notFound);
    });
  });
}

interface TtlOptions extends ClientOptions {
  readonly objects?: true;
}

function addTtl(lease: Command, io: CommandIo): void {
  const command = lease
    .command("ttl")
    .description("Print how long a lease lasts if it is not renewed.")
    .argument("<lease>", "its id", leaseId)
    .option("--objects", "also its objects");
  addClientOptions(command).action(async (id: bigint, options: TtlOptions) => {
    requireFormat(command, options, ["table", "json"]);
    await runSession(io, options, async ({ client, output }) => {
      const info = await client.leases.timeToLive(id, { objects: options.objects });
      const { ttlMs, grantedTtlMs, objects, others } = info;
      if (options.output === "json") {
        const ttl = wireSeconds(ttlMs);
        const message = { ttl, granted_ttl: wireSeconds(grantedTtlMs) };
        return output.write(line({ ...message, objects, others: String(others) }));
      }
      const seconds = [ttlMs, grantedTtlMs].map((ms) => durationOf(ms / 1_000));
      const head = new Table(["LEASE", "TTL", "GRANTED"], tableOptions(io));
      await output.write(head.format([[String(id), ...seconds]]));
      if (options.objects !== true) return;
      const rows = objects.map(({ resource, key }) => [resource, key].map(printableText));
      const table = new Table(["RESOURCE", "KEY"], tableOptions(io));
      await output.write(`\n${table.format(rows)}`);
      if (others > 0) await output.write(`Keys of no resource of the service: ${others}.\n`);
    });
  });
}
