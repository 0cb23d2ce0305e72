import type { Command } from "commander";
import { invalidRequest } from "../../base/errors.ts";
import type { TransactionRequest, TransactionResult } from "../../client/calls/transaction.ts";
import { type CommandIo, exitCodes, readInput, tableOptions } from "../output/command-io.ts";
import { printableText } from "../output/printable.ts";
import { Table } from "../output/table.ts";
import {
  addClientOptions,
  addHistoryOption,
  type ClientOptions,
  type HistoryOptions,
  requireFormat,
  usageError,
} from "./client-options.ts";
import { runSession } from "./client-session.ts";
import { objectRow, transactionJson } from "./object-output.ts";
import { parseTransaction, txnGrammar, wordsIn } from "./txn-text.ts";

interface TxnOptions extends ClientOptions, HistoryOptions {
  readonly validateOnly?: true;
  readonly requestId?: string;
}

/** Adds `txn`. */
export function addTxn(program: Command, io: CommandIo): void {
  const command = program
    .command("txn")
    .description(
      "Put and delete objects at one revision, if all conditions hold; otherwise write nothing, print the current objects, and exit with 4.",
    )
    .argument("[words...]", "the transaction; absent or -: read it from standard input")
    .option("--validate-only", "check everything, also the conditions, and write nothing")
    .option("--request-id <id>", "repeat it with the same id: it is applied once")
    .addHelpText("after", txnGrammar);
  addHistoryOption(addClientOptions(command)).action(
    async (words: readonly string[], options: TxnOptions) => {
      requireFormat(command, options, ["table", "json"]);
      if (words.length === 0 && io.stdin.isTTY === true) {
        usageError(command, "give the transaction as arguments, or - to type it.");
      }
      await runSession(io, options, async ({ client, output }) => {
        const isGiven = words.length > 0 && !(words.length === 1 && words[0] === "-");
        const request = parseTransaction(
          isGiven ? words : wordsIn(await readText(io)),
          options.resource,
        );
        const { validateOnly, requestId, historyId } = options;
        const result = await client.transaction(request, {
          ...{ validateOnly, requestId, historyId },
          returnCurrent: true,
        });
        await output.write(
          options.output === "json"
            ? transactionJson(result)
            : resultText(io, request, result, validateOnly === true),
        );
        if (!result.succeeded) io.exitWith(exitCodes.conflict);
      });
    },
  );
}

async function readText(io: CommandIo): Promise<string> {
  const bytes = await readInput(io.stdin, "Standard input", "transaction");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw invalidRequest("transaction", "Standard input is not UTF-8.");
  }
}

/** The outcome, and a table of what was written, or of the compares. */
function resultText(
  io: CommandIo,
  { compares = [], operations = [] }: TransactionRequest,
  result: TransactionResult,
  isValidation: boolean,
): string {
  const { succeeded, revision } = result;
  const options = tableOptions(io);
  if (!succeeded) {
    const table = new Table(["HELD", "RESOURCE", "KEY", "REVISION", "VERSION", "VALUE"], options);
    const rows = compares.map(({ resource, key }, n) => {
      const { held = false, object } = result.compares[n] ?? {};
      const state = object === undefined ? [printableText(key), "-", "-", "-"] : objectRow(object);
      return [held ? "yes" : "no", printableText(resource), ...state];
    });
    return `A condition does not hold at revision ${revision}: nothing was written.\n${table.format(rows)}`;
  }
  if (isValidation) return `Valid at revision ${revision}: nothing was written.\n`;
  const written = operations.map(({ type, resource, key }, n) => {
    const version = result.results[n]?.object?.version;
    return [type, printableText(resource), printableText(key), String(version ?? "-")];
  });
  const table = new Table(["OPERATION", "RESOURCE", "KEY", "VERSION"], options);
  return `Succeeded at revision ${revision}.\n${written.length === 0 ? "" : table.format(written)}`;
}
