package main

import "github.com/urfave/cli/v2"

// commands lists every command, in the order of a first month.
func (a *app) commands(code *int) []*cli.Command {
	return []*cli.Command{
		a.migrateCommand(code),
		a.importCommand(code),
		a.meterCommand(code),
		a.usageCommand(code),
		a.pricesCommand(code),
		a.invoiceCommand(code),
		a.closeCommand(code),
		a.previewCommand(code),
		a.approveCommand(code),
		a.runCommand(code),
		a.reconcileCommand(code),
		a.releaseCommand(code),
		a.requeueCommand(code),
		a.retryDeclinedCommand(code),
		a.voidCommand(code),
		a.findingsCommand(code),
		a.resolveCommand(code),
		a.pauseCommand(code),
		a.resumeCommand(code),
		a.statusCommand(code),
		a.showCommand(code),
		a.explainCommand(code),
		a.statementCommand(code),
		a.exportCommand(code),
		a.outboxCommand(code),
		a.reopenCommand(code),
		a.doctorCommand(code),
		a.configCommand(code),
		a.completionCommand(code),
		a.manCommand(code),
	}
}
