import type { Client } from "../../client/client.ts";
import { compareKeys } from "../../model/key-order.ts";
import type { StoredObject } from "../../model/object.ts";
import type { ExportedObject, ExportHeader } from "./export-file.ts";

/** What an import does with one key. */
export interface ImportStep {
  readonly action: "create" | "replace" | "delete" | "keep";
  readonly resource: string;
  readonly key: string;
  /** Undefined: nothing is written. */
  readonly value: Buffer | undefined;
  /** The revision that the object has in the service; 0: it does not exist. */
  readonly modRevision: number;
}

/**
 * Compares the objects of an export with those in the service, both in the order of their keys, and so without holding
 * either: an import that is repeated writes only what is missing.
 */
export async function* importSteps(
  client: Pick<Client, "list">,
  { resources, prefix }: ExportHeader,
  exported: AsyncGenerator<ExportedObject, void, void>,
): AsyncGenerator<ImportStep, void, void> {
  let present: AsyncGenerator<StoredObject, void, void> | undefined;
  try {
    let next = await exported.next();
    for (const { name: resource } of resources) {
      present = objectsOf(client, resource, prefix);
      let object = await present.next();
      for (;;) {
        const wanted = !next.done && next.value.resource === resource ? next.value : undefined;
        const there = object.done ? undefined : object.value;
        if (wanted === undefined && there === undefined) break;
        const order =
          wanted === undefined ? 1 : there === undefined ? -1 : compareKeys(wanted.key, there.key);
        yield stepFor(resource, order <= 0 ? wanted : undefined, order >= 0 ? there : undefined);
        if (order <= 0) next = await exported.next();
        if (order >= 0) object = await present.next();
      }
    }
  } finally {
    await present?.return();
    await exported.return();
  }
}

function stepFor(
  resource: string,
  wanted: ExportedObject | undefined,
  there: StoredObject | undefined,
): ImportStep {
  const key = wanted?.key ?? there?.key ?? "";
  const modRevision = there?.modRevision ?? 0;
  const value = wanted?.value;
  if (value === undefined) return { action: "delete", resource, key, value, modRevision };
  if (there === undefined) return { action: "create", resource, key, value, modRevision };
  const action = value.equals(there.value) ? "keep" : "replace";
  return { action, resource, key, value, modRevision };
}

async function* objectsOf(
  client: Pick<Client, "list">,
  resource: string,
  prefix: string,
): AsyncGenerator<StoredObject, void, void> {
  for await (const page of client.list(resource, { prefix })) yield* page.items;
}
