import { byId, numberOf } from "./format.js";
import { fill, head } from "./table.js";

const typeColumns = [
  { title: "Type", isHeading: true },
  { title: "Resource" },
  { title: "Served", kind: "number" },
  { title: "Instances", kind: "number" },
  { title: "Invalid", kind: "number" },
];

const problemColumns = [
  { title: "Type", isHeading: true },
  { title: "What" },
  { title: "Resource", kind: "long" },
  { title: "Why", kind: "long" },
  { title: "Times", kind: "number" },
  { title: "Last client", kind: "long" },
];

head(byId("xds-types"), typeColumns);
head(byId("xds-problems"), problemColumns);

/** What is served by xDS, what is stored and not served, and what clients refuse. */
export function showXds({ xds }) {
  byId("xds-section").hidden = xds === undefined;
  if (xds === undefined) return;
  const types = xds.types.map(({ type, resource, served, instances, invalid }) => [
    type,
    resource,
    numberOf(served),
    numberOf(instances),
    { text: numberOf(invalid), kind: invalid > 0 ? "warn" : "" },
  ]);
  fill(byId("xds-types").tBodies[0], typeColumns, types);
  const problems = xds.problems.map(({ kind, type, name, text, count, by }) => [
    type,
    { text: kind === "refused" ? "refused by a client" : "not served", kind: "warn" },
    name,
    text,
    numberOf(count),
    by ?? "–",
  ]);
  fill(byId("xds-problems").tBodies[0], problemColumns, problems);
  byId("xds-problems").hidden = problems.length === 0;
}
