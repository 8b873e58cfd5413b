//! Commands whose options are described only once they are asked for.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

/// What follows a command that has more than a few options. clap describes the options of all
/// commands before it reads the first word; of these it knows but the name and the line of help, and
/// describes the rest once the command is given. That saves a fifth of a millisecond of each start.
#[derive(Clone, Debug)]
pub struct DescribedLate<T>(pub T);

impl<T: FromArgMatches> FromArgMatches for DescribedLate<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(DescribedLate)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for DescribedLate<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(T::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(T::augment_args_for_update)
    }
}

impl<T: Subcommand> Subcommand for DescribedLate<T> {
    fn augment_subcommands(command: Command) -> Command {
        command.defer(T::augment_subcommands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command.defer(T::augment_subcommands_for_update)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}
