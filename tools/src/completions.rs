//! `fpgactl completions`: scripts from the command line's definition.

use std::collections::BTreeSet;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory as _, ValueHint};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::schema;

/// What completes in bash. The generated function takes words as readline divides them, also at the colons of selectors, and values of
/// options for commands. This one gives it the words of the line between blanks, without the values of options.
const BASH: &str = r#"
_fpgactl_of_line() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} option= path= split= index word
    local -a COMP_WORDS
    read -ra COMP_WORDS <<<"$line"
    [[ $line == *[[:space:]] ]] && COMP_WORDS+=("")
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    local cur=${COMP_WORDS[COMP_CWORD]}
    COMP_WORDS[0]=$1
    # `--op=su` is completed as `--op su`.
    if [[ $cur == *=* ]]; then
        case ${cur%%=*} in
            OPTIONS)
                split=yes COMP_WORDS[COMP_CWORD]=${cur%%=*}
                cur=${cur#*=}
                COMP_WORDS+=("$cur") COMP_CWORD=$((COMP_CWORD + 1))
                ;;
        esac
    fi
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${COMP_WORDS[index]}
        if [[ -n $option ]]; then
            option= COMP_WORDS[index]=
            continue
        fi
        case $word in
            OPTIONS) option=$word ;;
            # Another program's words, as `mock serve` takes them: bash completes files.
            --) COMPREPLY=() && return ;;
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
    if [[ -n $split ]]; then
        # The generated function offers anything for an option that its command has not.
        _fpgactl "$1" "$option" ""
        [[ " ${COMPREPLY[*]} " == *" $option "* ]] || { COMPREPLY=() && return; }
    fi
    _fpgactl "$1" "$cur" "$option"
    # Readline has kept what is before the last word that it divides.
    [[ $2 == "$cur" ]] || COMPREPLY=("${COMPREPLY[@]#"${cur%"${cur##*[:=]}"}"}")
}
"#;

/// Returns the script for `shell`.
pub(crate) fn script(shell: Shell) -> Vec<u8> {
    let mut all = Cli::command();
    all.build();
    let mut command = offered(&all);
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "fpgactl", &mut script);
    if shell != Shell::Bash {
        return script;
    }
    let (mut options, mut files) = (BTreeSet::new(), BTreeSet::new());
    collect(&command, "", &mut options, &mut files);
    let alternatives = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(" | ");
    let function = BASH.replace("OPTIONS", &alternatives(options)).replace("FILES", &alternatives(files));
    let script = String::from_utf8_lossy(&script).replace("complete -F _fpgactl ", "complete -F _fpgactl_of_line ");
    (function.trim_start().to_owned() + "\n" + &script).into_bytes()
}

/// Returns a command and those below it, without options that it always refuses: those that it hides in place of global ones, and
/// `--stats-dir` if its help lacks it.
fn offered(command: &Command) -> Command {
    let is_offered = |arg: &&Arg| !arg.is_hide_set() || (arg.is_global_set() && arg.get_id() != "stats_dir");
    let args = command.get_arguments().filter(is_offered).map(|arg| match arg.get_id().as_str() {
        "name" if command.get_name() == "schema" => {
            arg.clone().value_parser(PossibleValuesParser::new(schema::names()))
        }
        _ => arg.clone().global(false),
    });
    let below = command.get_subcommands().map(offered);
    let about = command.get_about().cloned().unwrap_or_default();
    // clap takes names of the program's text only.
    let name: &'static str = command.get_name().to_owned().leak();
    let offered = Command::new(name).about(about).version(env!("FPGACTL_VERSION")).args(args).subcommands(below);
    // Those that clap adds are among them.
    offered.disable_help_flag(true).disable_version_flag(true).disable_help_subcommand(true)
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
