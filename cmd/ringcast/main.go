package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line.
type cli struct {
	Settings

	Pub        pubCmd                    `cmd:"" help:"Publish records: arguments, files or standard input, one record a line."`
	Sub        subCmd                    `cmd:"" help:"Subscribe to a stream and print its records."`
	Commit     commitCmd                 `cmd:"" help:"Write an event and the state that belongs to it, as one record."`
	State      stateCmd                  `cmd:"" help:"Read the state that commits have made."`
	Stream     streamCmd                 `cmd:"" help:"Create, list, describe and delete streams."`
	Cache      cacheCmd                  `cmd:"" help:"Read and write caches."`
	Log        logCmd                    `cmd:"" help:"Look at, check and repair the logs of a broker that does not run."`
	Token      tokenCmd                  `cmd:"" help:"Make signing keys and tokens, look into tokens."`
	Demo       demoCmd                   `cmd:"" help:"Start a broker, publish a text, kill the broker, read everything back and compare."`
	Perf       perfCmd                   `cmd:"" help:"Measure this machine: durable appends against their limit and their rivals."`
	Version    versionCmd                `cmd:"" help:"Print the version."`
	Completion kongcompletion.Completion `cmd:"" help:"Print shell code for tab completion."`
}

// exitRequest is what --help ends the parsing with.
type exitRequest int

// run is main with its surroundings as arguments; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int) {
	defer func() {
		if r := recover(); r != nil { // kong ends --help and completion through its exit function
			exit, ok := r.(exitRequest)
			if !ok {
				panic(r)
			}
			code = int(exit)
		}
	}()
	var c cli
	env := &environment{stdin: stdin, stdout: stdout, stderr: stderr}
	env.json = wantsJSON(args)
	file, err := loadFile(args)
	if err != nil {
		return env.fail(usageError(err))
	}
	parser, err := newParser(ctx, &c, env, file)
	if err != nil {
		return env.fail(err)
	}
	kongcompletion.Register(parser)
	kctx, err := parser.Parse(args)
	if err != nil {
		return env.fail(usageError(err))
	}
	env.json = c.JSON
	if err := kctx.Run(); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return env.fail(errInterrupted)
		}
		return env.fail(err)
	}
	return 0
}

// newParser makes the parser of c.
func newParser(ctx context.Context, c *cli, env *environment, file *configFile) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("ringcast"),
		kong.Description("Publish to and subscribe from a ringcast (or any Felix) broker, and manage it."),
		kong.Writers(env.stdout, env.stderr),
		kong.Resolvers(file),
		kong.Exit(func(code int) { panic(exitRequest(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(env, &c.Settings),
	)
}

// wantsJSON says whether a command line that may be wrong asks for JSON, so that the complaint
// about it comes in that form.
func wantsJSON(args []string) bool {
	for _, a := range args {
		switch a {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}
