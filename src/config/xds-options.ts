import { type TypeName, typeNames } from "../xds/types.ts";
import { durationOption, type OptionDefinition } from "./option-definition.ts";
import { isResourceName } from "./resource-settings.ts";
import { parsed } from "./value-types.ts";

/** A type of xDS, and the name of the resource that it is served from. */
export interface XdsMapping {
  readonly type: TypeName;
  readonly resource: string;
}

const mapping = parsed(
  `TYPE=RESOURCE, with TYPE one of ${typeNames.join(", ")} and the name of a resource, such as eds=instances`,
  (input): XdsMapping | undefined => {
    const [name, resource = "", ...rest] = input.split("=");
    const type = typeNames.find((known) => known === name);
    const isValid = rest.length === 0 && isResourceName(resource);
    return type !== undefined && isValid ? { type, resource } : undefined;
  },
);

/** The options of xDS. */
export const xdsOptions = {
  xds: {
    schema: mapping,
    list: "commas",
    value: "TYPE=RESOURCE[,...]",
    help:
      "Serve xDS: cds, lds, rds and sds from a resource whose values are google.protobuf.Any, binary or in JSON; eds from the " +
      "instances of services, keys SERVICE/INSTANCE.",
    defaultHelp: "xDS is not served",
  },
  "xds-debounce": {
    ...durationOption("0s"),
    help: "How long changes of instances are collected before assignments are computed. 0s: those of one delivery. Needs --xds.",
    default: "0s",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;
