import { type Command, Option } from "commander";
import { messageOf } from "../../base/errors.ts";
import type { Client } from "../../client/client.ts";
import { type CommandIo, exitCodeOf } from "../output/command-io.ts";
import { countOf, printableText, quantity } from "../output/printable.ts";
import { checkExport, exportedObjects } from "../transfer/export-file.ts";
import { type ImportStep, importSteps } from "../transfer/import-steps.ts";
import {
  addClientOptions,
  type ClientOptions,
  usageError,
  wholeNumberIn,
} from "./client-options.ts";
import { runSession, type Session } from "./client-session.ts";

interface ImportOptions extends ClientOptions {
  readonly dryRun?: true;
  readonly onlyMissing?: true;
  readonly prune?: true;
  readonly yes?: true;
  readonly concurrency: number;
}

/** Number of failures after which an import ends: the rest would most likely fail, too. */
const maxFailures = 100;

const maxConcurrency = 256;

/** Adds `import`. */
export function addImport(program: Command, io: CommandIo): void {
  const command = program
    .command("import")
    .description(
      "Create and replace objects as in the file of an export. Repeat it after a failure: it writes only what differs. Leases are not restored.",
    )
    .argument("<file>", "the file, which is checked as a whole before anything is written")
    .option("--dry-run", "print what would be done, and write nothing")
    .option("--only-missing", "create objects, and replace none")
    .option(
      "--prune",
      "delete objects of the resources, below the export's prefix, that the file lacks",
    )
    .option("--yes", "confirm --prune")
    .addOption(
      new Option("--concurrency <count>", "number of writes at a time")
        .argParser(wholeNumberIn(1, maxConcurrency))
        .default(16),
    );
  addClientOptions(command).action(async (path: string, options: ImportOptions) => {
    if (options.prune === true && options.yes !== true && options.dryRun !== true) {
      usageError(
        command,
        "--prune deletes objects. Confirm it with --yes, or look with --dry-run.",
      );
    }
    await runSession(io, options, async (session) => {
      const summary = await checkExport(path);
      if (summary.leased > 0) {
        const objects = quantity(summary.leased, "object");
        session.say(`${objects} had a lease, and will not end with one.`);
      }
      const steps = importSteps(session.client, summary, exportedObjects(path));
      const run = new ImportRun(session, options);
      try {
        for await (const step of steps) await run.take(step);
      } finally {
        await run.end();
      }
    });
  });
}

/** The writes of an import. */
class ImportRun {
  readonly #session: Session;
  readonly #options: ImportOptions;
  readonly #done = { create: 0, replace: 0, keep: 0, delete: 0, failed: 0 };
  /** At most `concurrency`. */
  readonly #writing = new Set<Promise<void>>();

  constructor(session: Session, options: ImportOptions) {
    this.#session = session;
    this.#options = options;
  }

  /** Resolves when the next step may be taken. Rejects after too many failures. */
  async take(step: ImportStep): Promise<void> {
    const { dryRun, onlyMissing, prune, concurrency } = this.#options;
    const action =
      step.action === "replace" && onlyMissing === true
        ? "keep"
        : step.action === "delete" && prune !== true
          ? undefined
          : step.action;
    if (action === undefined) return;
    if (action === "keep") {
      this.#done.keep++;
      return;
    }
    if (dryRun === true) {
      this.#done[action]++;
      await this.#session.output.write(`${action} ${nameOf(step)}\n`);
      return;
    }
    const writing: Promise<void> = this.#write(step).finally(() => this.#writing.delete(writing));
    this.#writing.add(writing);
    if (this.#writing.size >= concurrency) await Promise.race(this.#writing);
    if (this.#done.failed >= maxFailures) {
      throw new Error(`The import ends after ${quantity(this.#done.failed, "failure")}.`);
    }
  }

  /** Waits for the writes, and prints what was done. */
  async end(): Promise<void> {
    await Promise.all(this.#writing);
    const { create, replace, keep, delete: deleted, failed } = this.#done;
    const counts = [
      `${countOf(create)} created`,
      `${countOf(replace)} replaced`,
      `${countOf(keep)} left as they were`,
      `${countOf(deleted)} deleted`,
      `${countOf(failed)} failed`,
    ];
    const dry = this.#options.dryRun === true ? "Dry run: " : "";
    await this.#session.output.write(`${dry}${counts.join(", ")}.\n`);
  }

  /** Writes only over the revision that was compared: what changes during an import is not lost, but reported. */
  async #write(step: ImportStep): Promise<void> {
    const { client, say, io } = this.#session;
    try {
      await written(client, step);
      this.#done[step.action]++;
    } catch (error) {
      this.#done.failed++;
      if (this.#done.failed === 1) io.exitWith(exitCodeOf(error));
      say(`Can't ${step.action} ${nameOf(step)}: ${messageOf(error)}`);
    }
  }
}

async function written(client: Client, step: ImportStep): Promise<void> {
  const { resource, key, value, modRevision: expectedModRevision } = step;
  if (value === undefined) await client.delete(resource, key, { expectedModRevision });
  else await client.put(resource, key, value, { expectedModRevision });
}

function nameOf({ resource, key }: ImportStep): string {
  return `${resource} ${printableText(key)}`;
}
