//! The network of switches that compute, between the cards.

use crate::proto::optweb::lane::LaneId;
use crate::world::Core;

impl Core {
    /// Lets the messages of the network arrive that are due.
    pub(crate) fn run_switches(&mut self) {
        let now = self.env.now;
        let Some(switches) = &mut self.env.switches else { return };
        if switches.due.is_some_and(|due| due <= now) {
            switches.due = None;
        }
        switches.network.run_until(now);
        let (mut ended, released) = (Vec::new(), std::mem::take(&mut switches.released));
        let network = &mut switches.network;
        switches.waiting.retain(|card| match network.take_ended(*card as u32) {
            Some(one) => {
                ended.push((*card, one));
                false
            }
            None => true,
        });
        for (card, one) in ended {
            if !self.cards[card].is_frozen {
                self.on(card).switched_ended(LaneId::first(card), one.sent, &one.output);
            }
        }
        for card in released {
            if !self.cards[card].is_frozen {
                self.on(card).data_at_network(LaneId::first(card));
            }
        }
        self.env.wake_switches();
    }
}
