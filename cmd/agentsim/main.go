// Command agentsim predicts, replays and draws the work of LLM agent fleets.
package main

import (
	"os"

	"github.com/agentsim/agentsim/cmd/agentsim/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.FromProcess()))
}
