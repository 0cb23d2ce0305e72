import type { Command } from "commander";
import type { ResourceInfo } from "../../client/resource-info.ts";
import { resourcesJson } from "../output/proto-json.ts";
import { Table } from "../output/table.ts";
import { addClientOptions, type ClientOptions, usageError } from "./client-options.ts";
import { type ClientIo, runSession } from "./client-session.ts";
import { tableOptions } from "./object-output.ts";

/** Adds `resources`. */
export function addResources(program: Command, io: ClientIo): void {
  const command = program
    .command("resources")
    .description("List the resources of the service of which the caller may read anything.");
  addClientOptions(command).action(async (options: ClientOptions) => {
    if (options.output === "value") usageError(command, "--output value is for objects.");
    await runSession(io, options, async ({ client, output }) => {
      const resources = await client.resources();
      if (options.output === "json") return output.write(resourcesJson(resources));
      const headings = ["NAME", "CODEC", "CACHE", "REVISION", "READABLE", "STALE FOR"];
      await output.write(new Table(headings, tableOptions(io)).format(resources.map(rowOf)));
    });
  });
}

function rowOf(resource: ResourceInfo): string[] {
  const { name, codec, isCached, revision, isReadableInFull, staleForMs } = resource;
  return [
    name,
    codec ?? "unknown",
    isCached ? "yes" : "no",
    revision === 0 ? "-" : String(revision),
    isReadableInFull ? "all" : "part",
    staleForMs === undefined ? "-" : `${(staleForMs / 1_000).toFixed(1)}s`,
  ];
}
