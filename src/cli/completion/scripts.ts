/** The shells for which there is a completion script. */
export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

/** The command that the scripts call with the words so far. It is not in the help. */
export const completeCommand = "__complete";

/** The first line of its output for file names; otherwise each line is a word, a tab, a description. */
export const filesLine = ":files";

/** The completion script of a shell. It has no list of commands: it asks the program, which knows its version's. */
export function completionScript(shell: Shell): string {
  return scripts[shell];
}

const scripts: Readonly<Record<Shell, string>> = {
  // bash splits words at = and :, which keys and flags have: the line is split at blanks instead, and a candidate loses
  // what bash does not replace.
  bash: `# bash completion for watch-fanout
_watch_fanout() {
  local line="\${COMP_LINE:0:COMP_POINT}" words=() lines=() word candidate kept=""
  read -a words <<< "$line"
  [[ "$line" == *[[:space:]] ]] && words+=("")
  word="\${words[\${#words[@]}-1]}"
  [[ "$COMP_WORDBREAKS" == *=* && "$word" == *=* ]] && kept="\${word%"\${word##*=}"}"
  [[ "$COMP_WORDBREAKS" == *:* && "\${word#"$kept"}" == *:* ]] && kept="\${word%"\${word##*:}"}"
  mapfile -t lines < <(watch-fanout ${completeCommand} -- "\${words[@]:1}" 2>/dev/null)
  COMPREPLY=()
  if [[ "\${lines[0]}" == "${filesLine}" ]]; then
    compopt -o default 2>/dev/null
    return
  fi
  for line in "\${lines[@]}"; do
    printf -v candidate %q "\${line%%$'\\t'*}"
    printf -v word %q "$kept"
    COMPREPLY+=("\${candidate#"$word"}")
  done
  if [[ \${#COMPREPLY[@]} -eq 1 && "\${COMPREPLY[0]}" == *[/=] ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
complete -F _watch_fanout watch-fanout
`,
  zsh: `#compdef watch-fanout
# zsh completion for watch-fanout
_watch_fanout() {
  local -a args lines open done openShown doneShown
  local line word
  args=("\${(@Q)words[2,CURRENT-1]}" "\${(Q)PREFIX}")
  lines=("\${(@f)$(watch-fanout ${completeCommand} -- "\${args[@]}" 2>/dev/null)}")
  if [[ "\${lines[1]}" == "${filesLine}" ]]; then
    [[ "$PREFIX" == *=* ]] && compset -P '*='
    _files
    return
  fi
  for line in "\${lines[@]}"; do
    [[ -z "$line" ]] && continue
    word="\${line%%$'\\t'*}"
    if [[ "$word" == *[/=] ]]; then
      open+=("$word") openShown+=("\${line/$'\\t'/  -- }")
    else
      done+=("$word") doneShown+=("\${line/$'\\t'/  -- }")
    fi
  done
  (( \${#open} )) && compadd -l -S '' -d openShown -a open
  (( \${#done} )) && compadd -l -d doneShown -a done
}
if [[ "\${funcstack[1]}" == "_watch_fanout" ]]; then
  _watch_fanout "$@"
else
  compdef _watch_fanout watch-fanout
fi
`,
  fish: `# fish completion for watch-fanout
function __watch_fanout_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l lines (watch-fanout ${completeCommand} -- $words[2..-1] 2>/dev/null)
  if test "$lines[1]" = "${filesLine}"
    set -l word (commandline -ct)
    set -l flag (string match -r -- '^--[^=]*=' $word)
    for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' $word))
      echo "$flag$path"
    end
    return
  end
  string join \\n -- $lines
end
complete -c watch-fanout -f -a '(__watch_fanout_complete)'
`,
};
