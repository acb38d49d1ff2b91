//! `fpgactl completions`: scripts from the command line's definition.

use std::collections::BTreeSet;

use clap::{Command, CommandFactory as _, ValueHint};
use clap_complete::Shell;

use crate::cli::Cli;

/// What completes in bash. The generated function takes words as readline divides them, also at the colons of selectors, and values of
/// options for commands. This one gives it the words of the line between blanks, without the values of options.
const BASH: &str = r#"
_fpgactl_of_line() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} option= path= index word
    local -a COMP_WORDS
    read -ra COMP_WORDS <<<"$line"
    [[ $line == *[[:space:]] ]] && COMP_WORDS+=("")
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    local cur=${COMP_WORDS[COMP_CWORD]}
    COMP_WORDS[0]=$1
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ -n $option ]]; then
            option= COMP_WORDS[index]=
            continue
        fi
        case $word in
            OPTIONS) option=$word ;;
            -*) ;;
            *) path+="$word " ;;
        esac
    done
    if [[ -z $option && $cur != -* ]]; then
        case $path in
            # A file: bash completes it.
            FILES) COMPREPLY=() && return ;;
        esac
    fi
    _fpgactl "$1" "$cur" "$option"
    # Readline has kept what is before the last word that it divides.
    [[ $2 == "$cur" ]] || COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*[:=]}"}"}")
}
"#;

/// Returns the script for `shell`.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fpgactl", &mut script);
    if shell != Shell::Bash {
        return script;
    }
    let mut command = Cli::command();
    command.build();
    let (mut options, mut files) = (BTreeSet::new(), BTreeSet::new());
    collect(&command, "", &mut options, &mut files);
    let alternatives = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(" | ");
    let function = BASH.replace("OPTIONS", &alternatives(options)).replace("FILES", &alternatives(files));
    let script = String::from_utf8_lossy(&script).replace("complete -F _fpgactl ", "complete -F _fpgactl_of_line ");
    (function.trim_start().to_owned() + "\n" + &script).into_bytes()
}

/// Adds the options of a command and those below it that have values, and patterns of commands that are given files.
fn collect(command: &Command, path: &str, options: &mut BTreeSet<String>, files: &mut BTreeSet<String>) {
    for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
        options.extend(arg.get_long().map(|long| format!("--{long}")));
        options.extend(arg.get_short().map(|short| format!("-{short}")));
        if arg.is_positional() && arg.get_value_hint() == ValueHint::AnyPath {
            files.insert(format!("'{path}'*"));
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        collect(below, &format!("{path}{} ", below.get_name()), options, files);
    }
}
