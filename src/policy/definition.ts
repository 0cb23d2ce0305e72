import type { Verb } from "./access.ts";

/*
 * A policy as its file says it, after its checks: docs/policy.md has the format. Policy compiles it.
 */

/** Grants each of the verbs on each of the scopes of each of the resources. */
export interface RuleDefinition {
  /** Names of resources, or `everyResource`. */
  readonly resources: readonly string[];
  /** Prefixes of keys; the empty one is of every key. */
  readonly prefixes: readonly string[];
  readonly keys: readonly string[];
  readonly verbs: readonly Verb[];
  /** Its line in the file, from 1. */
  readonly line: number;
}

export interface RoleDefinition {
  readonly name: string;
  readonly rules: readonly RuleDefinition[];
}

/**
 * A subject of a binding: one identity by its name, each identity whose name begins with a prefix and is longer, each
 * member of a group, or each identity that an authenticator has recognised.
 */
export type Subject =
  | { readonly name: string }
  | { readonly namePrefix: string }
  | { readonly group: string }
  | "everyone";

export interface BindingDefinition {
  /** The name of a role. */
  readonly role: string;
  readonly subjects: readonly Subject[];
  /** Its line in the file, from 1. */
  readonly line: number;
}

export interface PolicyDefinition {
  /** With different names. */
  readonly roles: readonly RoleDefinition[];
  /** Of roles of this policy. */
  readonly bindings: readonly BindingDefinition[];
}

/** A subject as the file writes it. */
export function formatSubject(subject: Subject): string {
  if (subject === "everyone") return "*";
  if ("name" in subject) return subject.name;
  return "group" in subject ? `group:${subject.group}` : `${subject.namePrefix}*`;
}
