package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

const completionHelp = `Prints a script that completes commands and flags. It is whole in itself: it does
not start billing when somebody presses TAB, so make it anew after an upgrade.

Example:
   source <(billing completion bash)                                  # in ~/.bashrc
   billing completion zsh > "${fpath[1]}/_billing"                    # once
   billing completion fish > ~/.config/fish/completions/billing.fish  # once

Exit codes: 0 printed   64 usage   74 it can't be written`

func (a *app) completionCommand(code *int) *cli.Command {
	shell := func(name string, script func([]place) string) *cli.Command {
		return a.command(code, &cli.Command{
			Name: name, Usage: "print the script for " + name, Description: completionHelp,
		}, func(_ context.Context, a *app, c *cli.Context) (*result, error) {
			return nil, a.emit(script(places(c.App)))
		})
	}
	return a.group(&cli.Command{
		Name: "completion", Usage: "print a script that completes commands and flags in a shell", Description: completionHelp,
		Subcommands: []*cli.Command{shell("bash", bashScript), shell("zsh", zshScript), shell("fish", fishScript)},
	})
}

// place is where somebody types: behind the program's name, or behind a command's.
type place struct {
	path  string // " import accounts", empty for the program itself
	words []choice
}

// choice is a word that may stand there.
type choice struct {
	word, usage string
	takesValue  bool
}

// Values that flags take, in whatever command: words to choose from, or a file. Of
// the others nothing is known.
var (
	flagValues = map[string][]string{
		"--format": {"csv", "jsonl", "table", "xlsx"}, "--log-format": {"auto", "text", "json"}, "--on-absent": {"charge", "hold"},
		"--checkin": {"healthchecks", "cronitor", "template"}, "--concurrency": {"auto"},
		"--encoding": {"utf-8", "utf-16", "windows-1252"}, "--delimiter": {"comma", "semicolon", "tab", "bar"},
		"--decimal": {"point", "comma"}, "--dates": {"dmy", "mdy"},
	}
	fileFlags = []string{"--file", "--output", "--metrics-file"}
)

// places lists every place of a program with its words.
func places(app *cli.App) []place {
	root := place{words: []choice{{word: "--help", usage: "show help"}, {word: "--version", usage: "print the version"}}}
	list := []place{root}
	var add func(at int, commands []*cli.Command)
	add = func(at int, commands []*cli.Command) {
		for _, cmd := range commands {
			if cmd.Hidden {
				continue
			}
			list[at].words = append(list[at].words, choice{word: cmd.Name, usage: cmd.Usage})
			list = append(list, place{path: list[at].path + " " + cmd.Name, words: choicesOf(cmd)})
			add(len(list)-1, cmd.Subcommands)
		}
	}
	add(0, app.Commands)
	return list
}

func choicesOf(cmd *cli.Command) []choice {
	words := []choice{{word: "--help", usage: "show help"}}
	for _, f := range cmd.VisibleFlags() {
		doc, ok := f.(cli.DocGenerationFlag)
		if name := f.Names()[0]; ok && name != "help" {
			words = append(words, choice{word: "--" + name, usage: doc.GetUsage(), takesValue: doc.TakesValue()})
		}
	}
	return words
}

// valueFlags are those that take a value which nothing is known of.
func valueFlags(list []place) (names []string) {
	for _, p := range list {
		for _, w := range p.words {
			if w.takesValue && flagValues[w.word] == nil && !slices.Contains(fileFlags, w.word) && !slices.Contains(names, w.word) {
				names = append(names, w.word)
			}
		}
	}
	slices.Sort(names)
	return names
}

// knownValues are the flags whose values are known, in order.
func knownValues() (names []string) {
	for name := range flagValues {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// pathPattern matches each place but the first, as the shells' case does.
func pathPattern(list []place) string {
	var paths []string
	for _, p := range list[1:] {
		paths = append(paths, "'"+p.path+"'")
	}
	return strings.Join(paths, "|")
}

func bashScript(list []place) string {
	var b strings.Builder
	b.WriteString(`# bash completion of billing: source <(billing completion bash)
_billing() {
    local IFS=$'\n' cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" at='' words='' i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${COMP_WORDS[i]}" in
        (` + pathPattern(list) + `) at="$at ${COMP_WORDS[i]}" ;;
        esac
    done
    case "$prev" in
    (` + strings.Join(fileFlags, "|") + `)
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$cur"))
        return ;;
`)
	for _, name := range knownValues() {
		fmt.Fprintf(&b, "    (%s) words=$'%s' ;;\n", name, strings.Join(flagValues[name], `\n`))
	}
	fmt.Fprintf(&b, "    (%s) return ;;\n    (*)\n        case \"$at\" in\n", strings.Join(valueFlags(list), "|"))
	for _, p := range list {
		var words []string
		for _, w := range p.words {
			words = append(words, w.word)
		}
		fmt.Fprintf(&b, "        ('%s') words=$'%s' ;;\n", p.path, strings.Join(words, `\n`))
	}
	b.WriteString(`        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -F _billing billing
`)
	return b.String()
}

func zshScript(list []place) string {
	var b strings.Builder
	b.WriteString(`#compdef billing
# zsh completion of billing: billing completion zsh > "${fpath[1]}/_billing"
_billing() {
    local at='' word
    local -a list
    for word in "${(@)words[2,CURRENT-1]}"; do
        case "$at $word" in
        (` + pathPattern(list) + `) at="$at $word" ;;
        esac
    done
    case "${words[CURRENT-1]}" in
    (` + strings.Join(fileFlags, "|") + `) _files; return ;;
`)
	for _, name := range knownValues() {
		fmt.Fprintf(&b, "    (%s) list=(%s) ;;\n", name, strings.Join(flagValues[name], " "))
	}
	fmt.Fprintf(&b, "    (%s) _message value; return ;;\n    (*)\n        case \"$at\" in\n", strings.Join(valueFlags(list), "|"))
	for _, p := range list {
		fmt.Fprintf(&b, "        ('%s') list=(\n", p.path)
		for _, w := range p.words {
			fmt.Fprintf(&b, "            %s\n", quoteShell(w.word+":"+strings.ReplaceAll(w.usage, ":", `\:`)))
		}
		b.WriteString("        ) ;;\n")
	}
	b.WriteString(`        esac ;;
    esac
    _describe billing list
}
if [ "${funcstack[1]}" = _billing ]; then
    _billing "$@"
else
    compdef _billing billing
fi
`)
	return b.String()
}

func fishScript(list []place) string {
	var b strings.Builder
	b.WriteString(`# fish completion of billing: billing completion fish > ~/.config/fish/completions/billing.fish
function __billing_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        switch "$at $word"
            case ` + strings.ReplaceAll(pathPattern(list), "|", " ") + `
                set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
complete -c billing -f
`)
	for _, p := range list {
		at := fmt.Sprintf("complete -c billing -n \"__billing_at '%s'\"", p.path)
		for _, w := range p.words {
			name, isFlag := strings.CutPrefix(w.word, "--")
			switch {
			case !isFlag:
				fmt.Fprintf(&b, "%s -a %s", at, name)
			case slices.Contains(fileFlags, w.word):
				fmt.Fprintf(&b, "%s -l %s -r -F", at, name)
			case flagValues[w.word] != nil:
				fmt.Fprintf(&b, "%s -l %s -x -a '%s'", at, name, strings.Join(flagValues[w.word], " "))
			case w.takesValue:
				fmt.Fprintf(&b, "%s -l %s -x", at, name)
			default:
				fmt.Fprintf(&b, "%s -l %s", at, name)
			}
			fmt.Fprintf(&b, " -d '%s'\n", strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(w.usage))
		}
	}
	return b.String()
}

// quoteShell makes one word of a text for a shell.
func quoteShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
