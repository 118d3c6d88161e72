// What an operator sets, beside the URI: by hand or in the environment.

import { invalid } from "./error.js";
import type { OpenOptions, Plugin } from "./types.js";

/**
 * What the names of the variables that a plugin may be given start with. A plugin names its own variables, so without a limit
 * it could ask for anybody's secrets.
 */
const PREFIXES = ["MELTANO_STATE_BACKEND_", "PIPELINE_STATE_"];

/** The settings for a plugin under one of its schemes, the more important ones later. */
export function settingsFor(scheme: string, plugin: Plugin, options: OpenOptions): Array<[string, string]> {
  const variables = Object.entries(options.env ?? {}).filter(
    (variable): variable is [string, string] =>
      PREFIXES.some((prefix) => variable[0].startsWith(prefix)) && variable[1] !== undefined && variable[1] !== "",
  );
  const fromEnvironment = plugin.settings.flatMap((setting) =>
    [setting.env, `PIPELINE_STATE_${variablePart(scheme)}_${variablePart(setting.name)}`].flatMap((variable) =>
      valuesOf(variables, variable, setting.name),
    ),
  );
  const given = Object.entries(options.settings ?? {})
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([name, value]): [string, string] => [name, String(value)])
    .filter(([, value]) => value !== "");
  for (const [name, value] of [...fromEnvironment, ...given]) {
    if (!value.isWellFormed() || !name.isWellFormed()) throw invalid(`the setting ${JSON.stringify(name)} is no Unicode text`);
  }
  return [...fromEnvironment, ...given];
}

/** The settings that a variable gives: one, or, where names end in `*`, one for each variable that begins so. */
function valuesOf(variables: Array<[string, string]>, variable: string, setting: string): Array<[string, string]> {
  if (!variable.endsWith("*") || !setting.endsWith("*")) {
    return variables.filter(([found]) => found === variable).map(([, value]) => [setting, value]);
  }
  const start = variable.slice(0, -1);
  return variables
    .filter(([found]) => found.startsWith(start) && found.length > start.length)
    .map(([found, value]) => [setting.slice(0, -1) + found.slice(start.length).toLowerCase(), value]);
}

/** A scheme or a setting's name as a part of a variable's: in upper case, with `_` for what a name can't hold. */
function variablePart(name: string): string {
  const stem = name.endsWith("*") ? name.slice(0, -1) : name;
  return stem.replace(/[^A-Za-z0-9]/g, "_").toUpperCase() + name.slice(stem.length);
}
