import type { XdsProblem, XdsStatus } from "../../server/admin/status/status.ts";
import type { XdsReport } from "../../xds/xds-door.ts";

/** Maximum number of problems, and of characters of a text. */
const maxProblems = 100;
const maxText = 256;

/**
 * What is served by xDS, of the processes that serve it: all have the same resources, and each its own clients. Undefined: none
 * does.
 */
export function xdsStatusOf(reports: readonly XdsReport[]): XdsStatus | undefined {
  const [first] = reports;
  if (first === undefined) return undefined;
  const invalid = first.types.flatMap(({ type, firstInvalid }) =>
    firstInvalid.map(({ key, why }): XdsProblem => {
      return { kind: "invalid", type, name: cut(key), text: cut(why), count: 1 };
    }),
  );
  const refused = new Map<string, XdsProblem>();
  for (const { type, resources, message, count, identity, node } of reports.flatMap(
    ({ refusals }) => refusals,
  )) {
    const [name, text] = [cut(resources.join(", ")), cut(message)];
    const key = JSON.stringify([type, name, text]);
    const before = refused.get(key)?.count ?? 0;
    const by = cut(node === "" ? identity : `${identity}, ${node}`);
    refused.set(key, { kind: "refused", type, name, text, count: before + count, by });
  }
  return {
    types: first.types.map(({ type, resource, served, instances, invalid: count }) => {
      return { type, resource, served, instances, invalid: count };
    }),
    problems: [...[...refused.values()].reverse(), ...invalid].slice(0, maxProblems),
  };
}

function cut(text: string): string {
  return text.slice(0, maxText);
}
